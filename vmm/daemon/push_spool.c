/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/push_spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/array.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "vmm/daemon/recording_file.h"

#define ENDING       ".pb.gz"
#define PARTIAL      "partial"
#define LOG_INTERVAL 60 /* s between two log messages about dropped profiles */

struct push_spool {
	struct thread_check thread;
	char *directory; /* owned */
	uint64_t size;   /* most bytes */
	int fd;
	time_t logged_at; /* time of the last message */
	_Atomic uint64_t files, bytes, dropped;
};

void push_item_name(const struct push_item *item, char name[PUSH_NAME_SIZE])
{
	snprintf(name, PUSH_NAME_SIZE,
		 "%015" PRIu64 "-%015" PRIu64 "-%" PRIu32 "-%" PRIu32 "-%" PRIu32 "-%s" ENDING,
		 item->from, item->until, item->rate, item->vcpu, item->refused, item->domain);
}

static bool parse_domain(const char *text, char domain[DOMAIN_FILE_SIZE])
{
	char name[DOMAIN_FILE_SIZE];
	size_t length = strlen(text), ending = sizeof(ENDING) - 1;

	if (length < ending || length - ending >= DOMAIN_FILE_SIZE ||
	    strcmp(text + length - ending, ENDING) != 0)
		return false;
	snprintf(domain, DOMAIN_FILE_SIZE, "%.*s", (int)(length - ending), text);
	return domain_name_unescape(domain, name) != -EINVAL;
}

/* Accepts the canonical form only. */
bool push_item_parse(const char *name, struct push_item *item)
{
	char again[PUSH_NAME_SIZE];
	uint64_t rate, vcpu, refused;
	int length = 0;

	if (sscanf(name, "%15" SCNu64 "-%15" SCNu64 "-%10" SCNu64 "-%10" SCNu64 "-%10" SCNu64 "-%n",
		   &item->from, &item->until, &rate, &vcpu, &refused, &length) != 5 ||
	    !length || !parse_domain(name + length, item->domain))
		return false;
	item->rate = (uint32_t)rate;
	item->vcpu = (uint32_t)vcpu;
	item->refused = (uint32_t)refused;
	push_item_name(item, again);
	return !strcmp(again, name);
}

static int failed(const struct push_spool *spool, int error, const char *what)
{
	return error_set(error, "cannot %s %s: %s", what, spool->directory, strerror(-error));
}

/* By FROM, then by domain. */
static int by_time(const void *left, const void *right)
{
	const struct push_item *a = left, *b = right;

	if (a->from != b->from)
		return a->from > b->from ? 1 : -1;
	return strcmp(a->domain, b->domain);
}

int push_spool_list(struct push_spool *spool, struct push_item **items, size_t *count)
{
	DIR *directory = recording_directory_list(spool->fd, ".");
	const struct dirent *file;
	struct push_item item;
	size_t capacity = 0;
	int error = 0;

	THREAD_CHECK(&spool->thread);
	*items = NULL;
	*count = 0;
	if (!directory)
		return failed(spool, -errno, "read");
	while (!error && (file = readdir(directory)))
		if (push_item_parse(file->d_name, &item)) {
			error = array_reserve(items, &capacity, *count + 1);
			if (!error)
				(*items)[(*count)++] = item;
		}
	closedir(directory);
	if (error) {
		free(*items);
		*items = NULL;
		return error_set(error, "no memory for the profiles that wait");
	}
	if (*count)
		qsort(*items, *count, sizeof(**items), by_time);
	return 0;
}

static uint64_t size_of(const struct push_spool *spool, const char *name)
{
	struct stat status;

	return fstatat(spool->fd, name, &status, AT_SYMLINK_NOFOLLOW) ? 0
								      : (uint64_t)status.st_size;
}

static int count_existing(struct push_spool *spool)
{
	struct push_item *items;
	char name[PUSH_NAME_SIZE];
	size_t count;
	int error = push_spool_list(spool, &items, &count);

	for (size_t i = 0; !error && i < count; i++) {
		push_item_name(&items[i], name);
		spool->bytes += size_of(spool, name);
	}
	spool->files = count;
	free(items);
	return error;
}

static int open_directory(struct push_spool *spool)
{
	int error;

	spool->fd = recording_directory_claim(spool->directory);
	if (spool->fd < 0)
		return spool->fd;
	unlinkat(spool->fd, PARTIAL, 0);
	error = count_existing(spool);
	thread_check_release(&spool->thread); /* the push thread uses it from now on */
	return error;
}

int push_spool_open(struct push_spool **result, const char *directory, uint64_t size)
{
	struct push_spool *spool = calloc(1, sizeof(*spool));
	int error;

	if (!spool)
		return error_set(-ENOMEM, "no memory for a spool");
	spool->fd = -1;
	spool->size = size;
	spool->directory = strdup(directory);
	error = spool->directory ? open_directory(spool)
				 : error_set(-ENOMEM, "no memory for a spool");
	if (error)
		push_spool_close(spool);
	else
		*result = spool;
	return error;
}

void push_spool_close(struct push_spool *spool)
{
	if (!spool)
		return;
	if (spool->fd >= 0)
		close(spool->fd);
	free(spool->directory);
	free(spool);
}

static bool remove_file(struct push_spool *spool, const struct push_item *item)
{
	char name[PUSH_NAME_SIZE];
	uint64_t size;

	THREAD_CHECK(&spool->thread);
	push_item_name(item, name);
	size = size_of(spool, name);
	if (unlinkat(spool->fd, name, 0)) {
		if (errno != ENOENT)
			log_warning("cannot remove %s/%s: %s", spool->directory, name,
				    strerror(errno));
		return false;
	}
	spool->files--;
	spool->bytes -= size < spool->bytes ? size : spool->bytes;
	return true;
}

/* While the store is unreachable, each new profile costs the oldest one. */
static void log_full(struct push_spool *spool)
{
	time_t now = time(NULL);

	if (spool->logged_at && now - spool->logged_at < LOG_INTERVAL)
		return;
	log_warning("%s is full: the oldest profiles are not pushed, %" PRIu64 " since the start",
		    spool->directory, spool->dropped);
	spool->logged_at = now;
}

/*
 * Drops the oldest until SIZE more bytes fit; a tenth more than that, as listing them takes time.
 */
static void make_room(struct push_spool *spool, uint64_t size)
{
	struct push_item *items;
	size_t count;

	if (spool->bytes + size <= spool->size || push_spool_list(spool, &items, &count))
		return;
	for (size_t i = 0; i < count && spool->bytes + size > spool->size - spool->size / 10; i++)
		spool->dropped += remove_file(spool, &items[i]);
	free(items);
	log_full(spool);
}

FILE *push_spool_begin(struct push_spool *spool)
{
	int fd = openat(spool->fd, PARTIAL, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
			0600);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (file)
		return file;
	failed(spool, -errno, "write a profile into");
	if (fd >= 0)
		close(fd);
	return NULL;
}

void push_spool_abandon(struct push_spool *spool, FILE *file)
{
	fclose(file);
	unlinkat(spool->fd, PARTIAL, 0);
}

/* SIZE is the file's; it is closed in any case. */
static int sync_file(FILE *file, uint64_t *size)
{
	struct stat status = { 0 };
	int error =
		fflush(file) || fsync(fileno(file)) || fstat(fileno(file), &status) ? -errno : 0;

	*size = error ? 0 : (uint64_t)status.st_size;
	if (fclose(file) && !error)
		error = -errno;
	return error;
}

int push_spool_commit(struct push_spool *spool, FILE *file, const struct push_item *item)
{
	char name[PUSH_NAME_SIZE];
	uint64_t size;
	int error = sync_file(file, &size);

	if (!error) {
		remove_file(spool, item);
		make_room(spool, size);
		push_item_name(item, name);
		error = renameat(spool->fd, PARTIAL, spool->fd, name) || fsync(spool->fd) ? -errno
											  : 0;
	}
	if (error) {
		unlinkat(spool->fd, PARTIAL, 0);
		return failed(spool, error, "write a profile into");
	}
	spool->files++;
	spool->bytes += size;
	return 0;
}

int push_spool_read(const struct push_spool *spool, const struct push_item *item, uint64_t *size)
{
	char name[PUSH_NAME_SIZE];
	struct stat status;
	int fd;

	push_item_name(item, name);
	fd = openat(spool->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status)) {
		int error = failed(spool, -errno, "read a profile of");

		if (fd >= 0)
			close(fd);
		return error;
	}
	*size = (uint64_t)status.st_size;
	return fd;
}

void push_spool_remove(struct push_spool *spool, const struct push_item *item)
{
	remove_file(spool, item);
}

unsigned int push_spool_refuse(struct push_spool *spool, const struct push_item *item)
{
	struct push_item again = *item;
	char from[PUSH_NAME_SIZE], to[PUSH_NAME_SIZE];

	again.refused++;
	push_item_name(item, from);
	push_item_name(&again, to);
	if (renameat(spool->fd, from, spool->fd, to) && errno != ENOENT)
		log_warning("cannot rename %s/%s: %s", spool->directory, from, strerror(errno));
	return again.refused;
}

void push_spool_count(struct push_spool *spool, struct push_spool_counts *counts)
{
	*counts = (struct push_spool_counts){ spool->files, spool->bytes, spool->dropped };
}
