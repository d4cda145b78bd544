/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/user_tables.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/array.h"
#include "vmm/guest/image_identity.h"
#include "vmm/record/image_queue.h"
#include "vmm/symbols/symbol_paths.h"

/* A table, and the build that it belongs to. */
struct built {
	struct image_identity identity;
	struct cfi_table *table;
};

/* The tables of one boot's images; freed when nothing uses those images. */
struct boot {
	struct user_images *images; /* shared ownership */
	struct built *built;
	size_t count, capacity;
	uint64_t size; /* bytes of its tables */
	struct boot *earlier;
};

struct user_tables {
	const char *symfs;
	struct image_parser *parser;
	struct boot *boot;          /* the newest; NULL: none */
	struct image_queue waiting; /* its images without a table so far */
	/* The parser makes its table; it is suspended in the queue. NULL: none, or it was of an
	 * earlier boot. */
	struct user_image *in_progress;
};

/* --- boots ------------------------------------------------------------------------ */

struct user_tables *user_tables_new(const char *symfs, struct image_parser *parser)
{
	struct user_tables *tables = calloc(1, sizeof(*tables));

	if (!tables)
		return NULL;
	tables->symfs = symfs;
	tables->parser = parser;
	tables->waiting.vdso = true;
	return tables;
}

static void free_boot(struct boot *boot)
{
	for (size_t i = 0; i < boot->count; i++)
		cfi_table_free(boot->built[i].table);
	free(boot->built);
	user_images_free(boot->images);
	free(boot);
}

void user_tables_free(struct user_tables *tables)
{
	if (!tables)
		return;
	while (tables->boot) {
		struct boot *boot = tables->boot;

		tables->boot = boot->earlier;
		free_boot(boot);
	}
	image_queue_free(&tables->waiting);
	free(tables);
}

/* Frees ended boots whose images are not used elsewhere. */
static void drop_earlier(struct boot *newest)
{
	struct boot **at = &newest->earlier;

	while (*at) {
		struct boot *boot = *at;

		if (user_images_shared(boot->images)) {
			at = &boot->earlier;
			continue;
		}
		*at = boot->earlier;
		free_boot(boot);
	}
}

/* False: no memory. */
static bool begin_boot(struct user_tables *tables, struct user_images *images)
{
	struct boot *boot = calloc(1, sizeof(*boot));

	if (!boot)
		return false;
	tables->in_progress = NULL;
	boot->images = user_images_share(images);
	boot->earlier = tables->boot;
	tables->boot = boot;
	return true;
}

/* --- where the bytes come from ---------------------------------------------------- */

static int read_host(void *context, uint64_t offset, void *to, size_t size)
{
	return offset <= INT64_MAX &&
			       pread(*(int *)context, to, size, (off_t)offset) == (ssize_t)size
		       ? 0
		       : -EFAULT;
}

/* The name comes from the guest: no device or FIFO is opened, and only that very build is used. */
static int open_host(const struct user_tables *tables, const struct user_image *image)
{
	char path[SYMBOL_PATH_MAX];
	struct stat status;
	int file;

	if (!user_image_name(image) ||
	    !symbol_paths_symfs(path, tables->symfs, user_image_name(image)))
		return -1;
	file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file >= 0 && (fstat(file, &status) || !S_ISREG(status.st_mode))) {
		close(file);
		file = -1;
	}
	return file;
}

static int read_host_file(const struct user_tables *tables, const struct user_image *image,
			  struct cfi_table **table)
{
	const struct image_identity *wanted = user_image_identity(image);
	int file = wanted && wanted->build_id_size ? open_host(tables, image) : -1;
	struct elf_source source = { .read = read_host, .context = &file };
	struct image_identity found;
	int error = -EFAULT;

	if (file < 0)
		return error;
	image_parser_identity(tables->parser, &source, &found);
	if (image_identity_same(&found, wanted))
		error = image_parser_table(tables->parser, &source, table);
	close(file);
	return error;
}

/* A file that is being written may be inconsistent. */
static int make_table(const struct user_tables *tables, struct image_memory *memory,
		      struct cfi_table **table)
{
	struct elf_source source = { .read = image_memory_read, .context = memory };
	int error = image_parser_table(tables->parser, &source, table);

	if (error == -EFAULT)
		return read_host_file(tables, memory->image, table);
	return error == -EINVAL || error == -ENOENT ? -EAGAIN : error;
}

/* ------------------------------------------------------------------------------ */

static struct cfi_table *find_built(const struct user_tables *tables,
				    const struct user_image *image)
{
	const struct image_identity *identity = user_image_identity(image);

	for (size_t i = 0; i < tables->boot->count && identity; i++)
		if (image_identity_same(&tables->boot->built[i].identity, identity))
			return tables->boot->built[i].table;
	return NULL;
}

/* Owns TABLE. -ENOMEM. */
static int keep(struct boot *boot, const struct user_image *image, struct cfi_table *table)
{
	const struct image_identity *identity = user_image_identity(image);
	struct built *built;

	if (array_reserve(&boot->built, &boot->capacity, boot->count + 1)) {
		cfi_table_free(table);
		return -ENOMEM;
	}
	built = &boot->built[boot->count++];
	*built = (struct built){ .table = table };
	if (identity)
		built->identity = *identity;
	boot->size += cfi_table_size(table);
	return 0;
}

static uint64_t total_size(const struct user_tables *tables)
{
	uint64_t size = 0;

	for (const struct boot *boot = tables->boot; boot; boot = boot->earlier)
		size += boot->size;
	return size;
}

/* ERROR is the result of building TABLE, which is owned here; -EINVAL: the guest may be writing the
 * image. */
static int give(struct user_tables *tables, struct user_image *image, struct cfi_table *table,
		int error)
{
	if (!error)
		error = keep(tables->boot, image, table);
	/* Until there is a table, frames are unwound as well as possible. */
	user_image_set_cfi(image, error ? NULL : table);
	return error == -EINVAL ? -EAGAIN : error;
}

/* 0: the image has its table; -EINPROGRESS: it is being built; -EFAULT, -EAGAIN: not all of it is
 * there yet; else there will be none. */
static int provide(struct user_tables *tables, struct user_image *image,
		   struct image_memory *memory)
{
	struct cfi_table *table = find_built(tables, image);
	int error;

	if (table) {
		user_image_set_cfi(image, table);
		return 0;
	}
	error = total_size(tables) < USER_TABLES_SIZE_MAX ? make_table(tables, memory, &table)
							  : -E2BIG;
	if (error == -EINPROGRESS)
		tables->in_progress = image;
	return error == -EINPROGRESS ? error : give(tables, image, table, error);
}

/* ERROR is the result for the image that is due. */
static void settle(struct user_tables *tables, int error, uint64_t now)
{
	if (error == -EINPROGRESS)
		image_queue_suspend(&tables->waiting);
	else if (error == -EFAULT || error == -EAGAIN || error == -EBUSY)
		image_queue_retry(&tables->waiting, now);
	else
		image_queue_done(&tables->waiting);
}

/* False: there is none, or it is not finished. */
static bool finish_table(struct user_tables *tables, uint64_t now)
{
	struct user_image *image = tables->in_progress;
	struct cfi_table *table;
	int error = image_parser_table_result(tables->parser, &table);

	if (error == -EINPROGRESS)
		return false;
	if (!image) {
		cfi_table_free(table);
		return true;
	}
	tables->in_progress = NULL;
	image_queue_resume(&tables->waiting, image);
	settle(tables, give(tables, image, table, error), now);
	return true;
}

bool user_tables_step(struct user_tables *tables, struct user_images *images,
		      const struct guest_kernel *kernel, const struct guest_view *view,
		      uint64_t now)
{
	struct image_memory memory = { .kernel = kernel, .view = view };
	struct user_image *image;

	if ((!tables->boot || tables->boot->images != images) && !begin_boot(tables, images))
		return false;
	drop_earlier(tables->boot);
	if (finish_table(tables, now))
		return true;
	memory.image = image = image_queue_next(&tables->waiting, images, now);
	if (image)
		settle(tables, provide(tables, image, &memory), now);
	return image;
}
