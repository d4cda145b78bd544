/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/user_symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/error.h"
#include "shared/unconst.h"
#include "vmm/guest/image_identity.h"
#include "vmm/record/image_queue.h"
#include "vmm/symbols/image_symbols.h"

/* The first image with its build id. */
struct build {
	struct image_identity identity;
	bool ambiguous; /* another image has the same build id and another layout */
};

struct user_symbols {
	struct image_parser *parser;
	struct image_symbols names;
	struct image_queue waiting;
	struct build *builds;
	size_t build_count, build_capacity;
	const struct user_image *image; /* the image that user_symbols_step() tried, */
	int error;                      /* the result, */
	struct span table;              /* and its symbols, owned; size 0: nothing to add */
};

int user_symbols_create(struct user_symbols **result, const struct build_id_cache_location *place,
			struct image_parser *parser)
{
	struct user_symbols *symbols = calloc(1, sizeof(*symbols));
	int error;

	if (!symbols)
		return error_set(-ENOMEM, "no memory for the names of the guest's programs");
	symbols->parser = parser;
	error = image_symbols_open(&symbols->names, place, USER_SYMBOLS_SIZE_MAX);
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
	free(unconst(symbols->table.data));
	free(symbols->builds);
	image_symbols_close(&symbols->names);
	image_queue_free(&symbols->waiting);
	free(symbols);
}

static void free_table(struct span *table)
{
	free(unconst(table->data));
	*table = span_of(NULL, 0);
}

static struct span build_id_of(const struct image_identity *identity)
{
	return span_of(identity->build_id, identity->build_id_size);
}

/* NULL: no memory. */
static struct build *add_build(struct user_symbols *symbols, const struct image_identity *identity)
{
	if (array_reserve(&symbols->builds, &symbols->build_capacity, symbols->build_count + 1))
		return NULL;
	symbols->builds[symbols->build_count] = (struct build){ .identity = *identity };
	return &symbols->builds[symbols->build_count++];
}

static bool has_build_id(const struct image_identity *identity, const uint8_t *build_id,
			 size_t size)
{
	return identity->build_id_size == size && !memcmp(identity->build_id, build_id, size);
}

/* Is the image the only one with its build id? */
static bool is_only_one(struct user_symbols *symbols, const struct image_identity *identity)
{
	for (size_t i = 0; i < symbols->build_count; i++) {
		struct build *build = &symbols->builds[i];

		if (!has_build_id(&build->identity, identity->build_id, identity->build_id_size))
			continue;
		if (!image_identity_same(&build->identity, identity)) {
			build->ambiguous = true;
			image_symbols_remove(&symbols->names, build_id_of(identity));
		}
		return !build->ambiguous;
	}
	return add_build(symbols, identity);
}

/* A program can claim any build id: it must not provide symbols for the kernel. */
static bool is_of_kernel(const struct guest_kernel *kernel, const struct image_identity *identity)
{
	if (has_build_id(identity, kernel->build_id, kernel->build_id_size))
		return true;
	for (size_t i = 0; i < kernel->module_count; i++)
		if (has_build_id(identity, kernel->modules[i].build_id,
				 kernel->modules[i].build_id_size))
			return true;
	return false;
}

/* Is the file still the one that the build id was read from? It may be modified in memory. */
static bool is_still(const struct user_symbols *symbols, const struct elf_source *file,
		     const struct image_identity *identity)
{
	struct image_identity now;

	image_parser_identity(symbols->parser, file, &now);
	return image_identity_same(&now, identity);
}

/* Are symbols of the image still missing, and allowed? */
static bool is_needed(struct user_symbols *symbols, const struct guest_kernel *kernel,
		      const struct image_identity *identity)
{
	return identity && identity->build_id_size && !is_of_kernel(kernel, identity) &&
	       is_only_one(symbols, identity) &&
	       symbols->names.statistics.written <= USER_SYMBOLS_WRITTEN_MAX &&
	       !image_symbols_has(&symbols->names, build_id_of(identity));
}

/* From the first of the tables that is all in memory. */
static int read_any(const struct user_symbols *symbols, const struct elf_source *file,
		    const struct image_identity *identity, struct span *table)
{
	struct image_parser *parser = symbols->parser;
	int error = image_parser_symbols(parser, file, IMAGE_SYMBOLS_ALL, table);

	if (error == -EFAULT)
		error = image_parser_symbols(parser, file, IMAGE_SYMBOLS_DYNAMIC, table);
	if (error == -EFAULT && image_symbols_are_installed(&symbols->names, build_id_of(identity)))
		error = image_parser_symbols(parser, file, IMAGE_SYMBOLS_SEGMENTS, table);
	return error;
}

/* 0: nothing to add, or it is in TABLE; else an error for user_symbols_commit(). */
static int provide(struct user_symbols *symbols, struct image_memory *memory, struct span *table)
{
	const struct elf_source file = { .read = image_memory_read, .context = memory };
	const struct image_identity *identity = user_image_identity(memory->image);
	int error;

	if (!is_needed(symbols, memory->kernel, identity))
		return 0;
	if (!is_still(symbols, &file, identity))
		return -EFAULT;
	error = read_any(symbols, &file, identity, table);
	if (error || is_still(symbols, &file, identity))
		return error;
	free_table(table);
	return -EFAULT;
}

bool user_symbols_step(struct user_symbols *symbols, struct user_images *images,
		       const struct guest_kernel *kernel, const struct guest_view *view,
		       uint64_t now)
{
	struct image_memory memory = { .kernel = kernel, .view = view };

	memory.image = symbols->image = image_queue_next(&symbols->waiting, images, now);
	if (!memory.image)
		return false;
	symbols->error = provide(symbols, &memory, &symbols->table);
	return true;
}

void user_symbols_commit(struct user_symbols *symbols, bool certain, uint64_t now)
{
	struct span *table = &symbols->table;
	const struct image_identity *identity = user_image_identity(symbols->image);

	if (table->size && certain)
		image_symbols_add(&symbols->names, *table, build_id_of(identity));
	/* -EFAULT: it may be read into memory later; -EINVAL: the guest may be writing it. */
	if ((table->size && !certain) || symbols->error == -EFAULT || symbols->error == -EINVAL)
		image_queue_retry(&symbols->waiting, now);
	else
		image_queue_done(&symbols->waiting);
	free_table(table);
}

void user_symbols_delay(struct user_symbols *symbols, uint64_t delay)
{
	symbols->waiting.delay = delay;
}

void user_symbols_expire(struct user_symbols *symbols)
{
	image_queue_expire(&symbols->waiting);
}
