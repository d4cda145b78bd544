/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/user_tables.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/array.h"
#include "shared/thread_start.h"
#include "vmm/guest/image_identity.h"
#include "vmm/guest/unwind/cfi_image.h"
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
	struct boot *boot;          /* the newest; NULL: none */
	struct image_queue waiting; /* its images without a table so far */
	struct table_job *job;      /* for JOB_IMAGE, which is suspended in the queue; NULL: none */
	struct user_image *job_image;
};

/* --- a table that is built on a thread of its own, as it takes seconds ------------ */

struct table_job {
	pthread_t thread;
	struct cfi_image *image;
	struct cfi_table *table;
	int error;
	_Atomic bool done; /* the fields above are final */
};

static void *run_job(void *context)
{
	struct table_job *job = context;

	job->error = cfi_image_make(&job->table, job->image);
	atomic_store_explicit(&job->done, true, memory_order_release);
	return NULL;
}

/* Owns IMAGE on success. -ENOMEM; -EAGAIN: no thread available. */
static int start_job(struct table_job **result, struct cfi_image *image)
{
	struct table_job *job = calloc(1, sizeof(*job));
	int error;

	if (!job)
		return -ENOMEM;
	job->image = image;
	error = thread_start(&job->thread, "unwind table", run_job, job);
	if (error) {
		free(job);
		return error;
	}
	*result = job;
	return 0;
}

static bool is_done(const struct table_job *job)
{
	return atomic_load_explicit(&job->done, memory_order_acquire);
}

/* Waits for the end. The caller owns *TABLE. Errors of cfi_image_make(). Frees JOB. */
static int end_job(struct table_job *job, struct cfi_table **table)
{
	int error;

	pthread_join(job->thread, NULL);
	error = job->error;
	*table = job->table;
	cfi_image_free(job->image);
	free(job);
	return error;
}

/* --- boots ------------------------------------------------------------------------ */

struct user_tables *user_tables_new(const char *symfs)
{
	struct user_tables *tables = calloc(1, sizeof(*tables));

	if (!tables)
		return NULL;
	tables->symfs = symfs;
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

/* The table of an ended boot is not needed. */
static void drop_job(struct user_tables *tables)
{
	struct cfi_table *table;

	if (!tables->job)
		return;
	end_job(tables->job, &table);
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
	drop_job(tables);
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
static int read_image(const struct user_tables *tables, struct image_memory *memory,
		      struct cfi_image **bytes)
{
	struct elf_source source = { .read = image_memory_read, .context = memory };
	int error = cfi_image_read(bytes, &source);

	if (error == -EFAULT)
		return read_host_file(tables, memory->image, bytes);
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

/* Builds the table of a large image on another thread. Owns BYTES. -EAGAIN: not now. */
static int build_in_background(struct user_tables *tables, struct user_image *image,
			       struct cfi_image *bytes)
{
	int error = tables->job ? -EAGAIN : start_job(&tables->job, bytes);

	if (error)
		cfi_image_free(bytes);
	else
		tables->job_image = image;
	return error ? error : -EINPROGRESS;
}

/* 0: the image has its table; -EINPROGRESS: it is being built; -EFAULT, -EAGAIN: not all of it is
 * there yet; else there will be none. */
static int provide(struct user_tables *tables, struct user_image *image,
		   struct image_memory *memory)
{
	struct cfi_table *table = find_built(tables, image);
	struct cfi_image *bytes;
	int error;

	if (table) {
		user_image_set_cfi(image, table);
		return 0;
	}
	error = total_size(tables) < USER_TABLES_SIZE_MAX ? read_image(tables, memory, &bytes)
							  : -E2BIG;
	if (error)
		return give(tables, image, NULL, error);
	if (cfi_image_size(bytes) > USER_TABLES_INLINE_MAX)
		return build_in_background(tables, image, bytes);
	error = cfi_image_make(&table, bytes);
	cfi_image_free(bytes);
	return give(tables, image, table, error);
}

/* ERROR is the result for the image that is due. */
static void settle(struct user_tables *tables, int error, uint64_t now)
{
	if (error == -EINPROGRESS)
		image_queue_suspend(&tables->waiting);
	else if (error == -EFAULT || error == -EAGAIN)
		image_queue_retry(&tables->waiting, now);
	else
		image_queue_done(&tables->waiting);
}

/* False: there is none, or it is not finished. */
static bool finish_job(struct user_tables *tables, uint64_t now)
{
	struct cfi_table *table;
	int error;

	if (!tables->job || !is_done(tables->job))
		return false;
	error = end_job(tables->job, &table);
	tables->job = NULL;
	image_queue_resume(&tables->waiting, tables->job_image);
	settle(tables, give(tables, tables->job_image, table, error), now);
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
	if (finish_job(tables, now))
		return true;
	memory.image = image = image_queue_next(&tables->waiting, images, now);
	if (image)
		settle(tables, provide(tables, image, &memory), now);
	return image;
}
