/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/profile/user_tables.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/guest/build_id.h"
#include "vmm/guest/cfi_image.h"
#include "vmm/profile/profile_files.h"

#define MILLISECOND  1000000ull
#define FIRST_WAIT   (100 * MILLISECOND)
#define LONGEST_WAIT (30000 * MILLISECOND)
#define NOTES_MAX    4096u
#define HEADERS_MAX  64u

/* A table, and the build that it is of. */
struct built {
	uint8_t build_id[USER_IMAGE_BUILD_ID_MAX];
	size_t build_id_size; /* 0: no other image can have it */
	struct cfi_table *table;
};

/* An image that has none yet. */
struct waiting {
	struct user_image *image;
	uint64_t next; /* ns: when to try */
	uint64_t wait; /* ns: before the time after that */
};

struct user_tables {
	const char *symfs;
	struct built *built;
	size_t built_count;
	uint64_t size;       /* bytes of all tables */
	uint32_t generation; /* of the images that what follows is of; 0: of none */
	uint32_t seen;       /* so many of them were looked at */
	struct waiting *waiting;
	size_t waiting_count;
};

struct user_tables *user_tables_new(const char *symfs)
{
	struct user_tables *tables = calloc(1, sizeof(*tables));

	if (tables)
		tables->symfs = symfs;
	return tables;
}

void user_tables_free(struct user_tables *tables)
{
	if (!tables)
		return;
	for (size_t i = 0; i < tables->built_count; i++)
		cfi_table_free(tables->built[i].table);
	free(tables->built);
	free(tables->waiting);
	free(tables);
}

/* BLOCK of COUNT members with room for one more: it grows each time that COUNT is a power of two. */
static void *with_room(void *block, size_t count, size_t size)
{
	return count & (count - 1) ? block : realloc(block, (count ? 2 * count : 1) * size);
}

static bool has_code(const struct user_image *image)
{
	return user_image_kind(image) == USER_IMAGE_FILE || user_image_kind(image) == USER_IMAGE_VDSO;
}

static void wait_for(struct user_tables *tables, struct user_image *image)
{
	struct waiting *waiting = with_room(tables->waiting, tables->waiting_count, sizeof(*waiting));

	if (!waiting)
		return;
	tables->waiting = waiting;
	tables->waiting[tables->waiting_count++] = (struct waiting){ .image = image, .wait = FIRST_WAIT };
}

static void look_for_new(struct user_tables *tables, struct user_images *images)
{
	struct user_image *image;

	if (tables->generation != user_images_generation(images)) {
		tables->generation = user_images_generation(images);
		tables->seen = 0;
		tables->waiting_count = 0;
	}
	while ((image = user_images_settled(images, tables->seen))) {
		if (has_code(image))
			wait_for(tables, image);
		tables->seen++;
	}
}

/* --- where the bytes come from ------------------------------------------------ */

struct guest_file {
	const struct user_image *image;
	const struct guest_kernel *kernel;
	const struct guest_view *view;
};

static int read_guest(void *context, uint64_t offset, void *to, size_t size)
{
	const struct guest_file *file = context;

	return user_image_read(file->image, file->kernel, file->view, offset, to, size);
}

static int read_host(void *context, uint64_t offset, void *to, size_t size)
{
	return offset <= INT64_MAX && pread(*(int *)context, to, size, (off_t)offset) == (ssize_t)size
		       ? 0
		       : -EFAULT;
}

static size_t read_build_id(const struct cfi_source *source, uint8_t *build_id)
{
	_Alignas(4) uint8_t notes[NOTES_MAX];
	Elf64_Phdr program;
	Elf64_Ehdr header;
	size_t size = 0;

	if (source->read(source->context, 0, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_phentsize != sizeof(program))
		return 0;
	for (unsigned int i = 0; i < header.e_phnum && i < HEADERS_MAX && !size; i++) {
		if (source->read(source->context, header.e_phoff + i * sizeof(program), &program,
				 sizeof(program)))
			return 0;
		if (program.p_type == PT_NOTE && program.p_filesz <= sizeof(notes) &&
		    !source->read(source->context, program.p_offset, notes, program.p_filesz))
			size = build_id_find(span_of(notes, program.p_filesz), build_id,
					     USER_IMAGE_BUILD_ID_MAX);
	}
	return size;
}

/* The guest says what the file is called: not a device or a FIFO is opened, and only that very build is
 * taken. */
static int open_host(const struct user_tables *tables, const struct user_image *image)
{
	char path[PROFILE_PATH_MAX];
	struct stat status;
	int file;

	if (!user_image_name(image) || !profile_files_symfs(path, tables->symfs, user_image_name(image)))
		return -1;
	file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file >= 0 && (fstat(file, &status) || !S_ISREG(status.st_mode))) {
		close(file);
		file = -1;
	}
	return file;
}

static int compile_host_file(const struct user_tables *tables, const struct user_image *image,
			     struct cfi_table **table)
{
	uint8_t found[USER_IMAGE_BUILD_ID_MAX];
	const uint8_t *wanted;
	size_t size = user_image_build_id(image, &wanted);
	int file = size ? open_host(tables, image) : -1;
	struct cfi_source source = { .read = read_host, .context = &file };
	int error = -EFAULT;

	if (file < 0)
		return error;
	if (read_build_id(&source, found) == size && !memcmp(found, wanted, size))
		error = cfi_image_compile(table, &source);
	close(file);
	return error;
}

/* What the guest is writing to may make no sense yet: only what a file of the host says is final. */
static int compile(const struct user_tables *tables, const struct guest_file *file, struct cfi_table **table)
{
	struct cfi_source source = { .read = read_guest, .context = (void *)(uintptr_t)file };
	int error = cfi_image_compile(table, &source);

	if (error == -EFAULT)
		return compile_host_file(tables, file->image, table);
	return error == -EINVAL || error == -ENOENT ? -EAGAIN : error;
}

/* ------------------------------------------------------------------------------ */

static struct cfi_table *find_built(const struct user_tables *tables, const struct user_image *image)
{
	const uint8_t *build_id;
	size_t size = user_image_build_id(image, &build_id);

	for (size_t i = 0; i < tables->built_count && size; i++)
		if (tables->built[i].build_id_size == size &&
		    !memcmp(tables->built[i].build_id, build_id, size))
			return tables->built[i].table;
	return NULL;
}

/* Takes TABLE over. -ENOMEM. */
static int keep(struct user_tables *tables, const struct user_image *image, struct cfi_table *table)
{
	struct built *built = with_room(tables->built, tables->built_count, sizeof(*built));
	const uint8_t *build_id;

	if (!built) {
		cfi_table_free(table);
		return -ENOMEM;
	}
	tables->built = built;
	built += tables->built_count++;
	*built = (struct built){ .table = table };
	built->build_id_size = user_image_build_id(image, &build_id);
	if (built->build_id_size)
		memcpy(built->build_id, build_id, built->build_id_size);
	tables->size += cfi_table_size(table);
	return 0;
}

/* 0: FILE's image has its table; -EFAULT, -EAGAIN: not all of it is there yet; else there is none to be had.
 */
static int provide(struct user_tables *tables, const struct guest_file *file)
{
	struct user_image *image = (struct user_image *)(uintptr_t)file->image;
	struct cfi_table *table = find_built(tables, image);
	int error = 0;

	if (!table && tables->size >= USER_TABLES_SIZE_MAX)
		return -E2BIG;
	if (!table) {
		error = compile(tables, file, &table);
		if (!error)
			error = keep(tables, image, table);
	}
	if (!error)
		user_image_set_cfi(image, table);
	return error;
}

bool user_tables_turn(struct user_tables *tables, struct user_images *images,
		      const struct guest_kernel *kernel, const struct guest_view *view, uint64_t now)
{
	look_for_new(tables, images);
	for (size_t i = 0; i < tables->waiting_count; i++) {
		struct waiting *waiting = &tables->waiting[i];
		struct guest_file file = { .image = waiting->image, .kernel = kernel, .view = view };
		int error;

		if (now < waiting->next)
			continue;
		error = provide(tables, &file);
		if (error == -EFAULT || error == -EAGAIN) {
			waiting->next = now + waiting->wait;
			waiting->wait = waiting->wait < LONGEST_WAIT / 2 ? 2 * waiting->wait : LONGEST_WAIT;
		} else {
			*waiting = tables->waiting[--tables->waiting_count];
		}
		return true;
	}
	return false;
}
