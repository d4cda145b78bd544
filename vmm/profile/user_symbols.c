/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/profile/user_symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/elf_tables.h"
#include "shared/error.h"
#include "vmm/profile/image_names.h"
#include "vmm/profile/user_waiting.h"

struct user_symbols {
	struct image_names names;
	struct user_waiting waiting;
};

struct guest_file {
	const struct user_image *image;
	const struct guest_kernel *kernel;
	const struct guest_view *view;
};

int user_symbols_create(struct user_symbols **result)
{
	struct user_symbols *symbols = calloc(1, sizeof(*symbols));
	int error;

	if (!symbols)
		return error_set(-ENOMEM, "no memory for the names of the guest's programs");
	error = image_names_open(&symbols->names, USER_SYMBOLS_SIZE_MAX);
	if (error) {
		free(symbols);
		return error;
	}
	*result = symbols;
	return 0;
}

void user_symbols_free(struct user_symbols *symbols)
{
	if (!symbols)
		return;
	image_names_close(&symbols->names);
	user_waiting_free(&symbols->waiting);
	free(symbols);
}

static int read_guest(void *context, uint64_t offset, void *to, size_t size)
{
	const struct guest_file *file = context;

	return user_image_read(file->image, file->kernel, file->view, offset, to, size);
}

/* The table as the guest's agent would send it, which is the caller's to free. */
static int read_table(const struct elf_source *file, const struct elf_tables *tables, struct span *table)
{
	size_t segments = tables->head.segments * sizeof(tables->segments[0]);
	size_t before = sizeof(tables->head) + segments;
	uint8_t *bytes = malloc(before + tables->head.symbols + tables->head.strings);
	int error;

	if (!bytes)
		return -ENOMEM;
	memcpy(bytes, &tables->head, sizeof(tables->head));
	memcpy(bytes + sizeof(tables->head), tables->segments, segments);
	error = file->read(file->context, tables->symbols, bytes + before, tables->head.symbols);
	if (!error)
		error = file->read(file->context, tables->strings, bytes + before + tables->head.symbols,
				   tables->head.strings);
	if (error) {
		free(bytes);
		return error;
	}
	*table = span_of(bytes, before + tables->head.symbols + tables->head.strings);
	return 0;
}

typedef int find_tables(const struct elf_source *file, struct elf_tables *tables);

static int read_symbols(const struct elf_source *file, find_tables *find, struct span *table)
{
	struct elf_tables tables;
	int error = find(file, &tables);

	return error ? error : read_table(file, &tables, table);
}

/*
 * 0: it has its names, or they were there; -EFAULT: they may come to be in memory; -EINVAL: the guest may be
 * writing to it; others: none are to be had.
 */
static int provide(struct user_symbols *symbols, struct guest_file *guest_file)
{
	const struct elf_source file = { .read = read_guest, .context = guest_file };
	const uint8_t *build_id;
	size_t size = user_image_build_id(guest_file->image, &build_id);
	struct span table;
	int error;

	if (!size || image_names_has(&symbols->names, build_id, size))
		return 0;
	error = read_symbols(&file, elf_tables_find, &table);
	if (error == -EFAULT)
		error = read_symbols(&file, elf_tables_find_dynamic, &table);
	if (error)
		return error;
	image_names_add(&symbols->names, table, build_id, size);
	free((void *)(uintptr_t)table.data);
	return 0;
}

bool user_symbols_turn(struct user_symbols *symbols, struct user_images *images,
		       const struct guest_kernel *kernel, const struct guest_view *view, uint64_t now)
{
	struct guest_file file = { .kernel = kernel, .view = view };
	int error;

	file.image = user_waiting_next(&symbols->waiting, images, now);
	if (!file.image)
		return false;
	error = provide(symbols, &file);
	if (error == -EFAULT || error == -EINVAL)
		user_waiting_again(&symbols->waiting, now);
	else
		user_waiting_done(&symbols->waiting);
	return true;
}

void user_symbols_hurry(struct user_symbols *symbols)
{
	user_waiting_hurry(&symbols->waiting);
}
