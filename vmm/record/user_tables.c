/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/user_tables.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "vmm/guest/image_identity.h"
#include "vmm/guest/unwind/cfi_image.h"
#include "vmm/record/table_job.h"
#include "vmm/symbols/symbol_paths.h"

#define FIRST_WAIT   (100 * NS_PER_MS)
#define LONGEST_WAIT (30000 * NS_PER_MS)

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

/* An image without a table so far. */
struct waiting {
	struct user_image *image;
	uint64_t next; /* ns, when to try */
	uint64_t wait; /* ns, interval before the next try */
};

struct user_tables {
	const char *symfs;
	struct boot *boot; /* the newest; NULL: none */
	uint32_t seen;     /* number of its images that were scanned */
	struct waiting *waiting;
	size_t waiting_count, waiting_capacity;
	struct table_job *job; /* for JOB_FOR; NULL: none */
	struct waiting job_for;
};

struct user_tables *user_tables_new(const char *symfs)
{
	struct user_tables *tables = calloc(1, sizeof(*tables));

	if (tables)
		tables->symfs = symfs;
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

/* The table of an ended boot is not needed. */
static void drop_job(struct user_tables *tables)
{
	struct cfi_table *table;

	if (!tables->job)
		return;
	table_job_end(tables->job, &table);
	cfi_table_free(table);
	tables->job = NULL;
}

void user_tables_free(struct user_tables *tables)
{
	if (!tables)
		return;
	drop_job(tables);
	while (tables->boot) {
		struct boot *boot = tables->boot;

		tables->boot = boot->earlier;
		free_boot(boot);
	}
	free(tables->waiting);
	free(tables);
}

static bool has_code(const struct user_image *image)
{
	return user_image_kind(image) == USER_IMAGE_FILE ||
	       user_image_kind(image) == USER_IMAGE_VDSO;
}

static void wait_for(struct user_tables *tables, const struct waiting *image)
{
	if (array_reserve(&tables->waiting, &tables->waiting_capacity, tables->waiting_count + 1))
		return;
	tables->waiting[tables->waiting_count++] = *image;
}

static void try_again(struct waiting *waiting, uint64_t now)
{
	waiting->next = now + waiting->wait;
	waiting->wait = waiting->wait < LONGEST_WAIT / 2 ? 2 * waiting->wait : LONGEST_WAIT;
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
	drop_job(tables);
	boot->images = user_images_share(images);
	boot->earlier = tables->boot;
	tables->boot = boot;
	tables->seen = 0;
	tables->waiting_count = 0;
	return true;
}

/* False: no table can be built for it. */
static bool add_new(struct user_tables *tables, struct user_images *images)
{
	struct user_image *image;

	if ((!tables->boot || tables->boot->images != images) && !begin_boot(tables, images))
		return false;
	drop_earlier(tables->boot);
	while ((image = user_images_loaded(images, tables->seen))) {
		if (has_code(image))
			wait_for(tables, &(struct waiting){ .image = image, .wait = FIRST_WAIT });
		tables->seen++;
	}
	return true;
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
			  struct cfi_image **bytes)
{
	const struct image_identity *wanted = user_image_identity(image);
	int file = wanted && wanted->build_id_size ? open_host(tables, image) : -1;
	struct elf_source source = { .read = read_host, .context = &file };
	struct image_identity found;
	int error = -EFAULT;

	if (file < 0)
		return error;
	image_identity_read(&found, &source);
	if (image_identity_same(&found, wanted))
		error = cfi_image_read(bytes, &source);
	close(file);
	return error;
}

/* A file that is being written may be inconsistent. */
static int read_image(const struct user_tables *tables, const struct guest_file *file,
		      struct cfi_image **bytes)
{
	struct elf_source source = { .read = read_guest, .context = (void *)(uintptr_t)file };
	int error = cfi_image_read(bytes, &source);

	if (error == -EFAULT)
		return read_host_file(tables, file->image, bytes);
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

/* 0: the image has its table, or it is being built; -EFAULT, -EAGAIN: not all of it is there yet;
 * else there will be none. */
static int provide(struct user_tables *tables, const struct waiting *waiting,
		   const struct guest_file *file)
{
	struct cfi_table *table = find_built(tables, waiting->image);
	struct cfi_image *bytes;
	int error;

	if (table) {
		user_image_set_cfi(waiting->image, table);
		return 0;
	}
	error = total_size(tables) < USER_TABLES_SIZE_MAX ? read_image(tables, file, &bytes)
							  : -E2BIG;
	if (error)
		return give(tables, waiting->image, NULL, error);
	if (cfi_image_size(bytes) > USER_TABLES_INLINE_MAX) {
		error = tables->job ? -EAGAIN : table_job_start(&tables->job, bytes);
		if (error)
			cfi_image_free(bytes);
		else
			tables->job_for = *waiting;
		return error;
	}
	error = cfi_image_make(&table, bytes);
	cfi_image_free(bytes);
	return give(tables, waiting->image, table, error);
}

static bool may_come(int error)
{
	return error == -EFAULT || error == -EAGAIN;
}

/* False: there is none, or it is not finished. */
static bool end_job(struct user_tables *tables, uint64_t now)
{
	struct cfi_table *table;
	int error;

	if (!tables->job || !table_job_done(tables->job))
		return false;
	error = table_job_end(tables->job, &table);
	tables->job = NULL;
	if (may_come(give(tables, tables->job_for.image, table, error))) {
		try_again(&tables->job_for, now);
		wait_for(tables, &tables->job_for);
	}
	return true;
}

bool user_tables_turn(struct user_tables *tables, struct user_images *images,
		      const struct guest_kernel *kernel, const struct guest_view *view,
		      uint64_t now)
{
	if (!add_new(tables, images))
		return false;
	if (end_job(tables, now))
		return true;
	for (size_t i = 0; i < tables->waiting_count; i++) {
		struct waiting *waiting = &tables->waiting[i];
		struct guest_file file = { .image = waiting->image,
					   .kernel = kernel,
					   .view = view };

		if (now < waiting->next)
			continue;
		if (may_come(provide(tables, waiting, &file)))
			try_again(waiting, now);
		else
			*waiting = tables->waiting[--tables->waiting_count];
		return true;
	}
	return false;
}
