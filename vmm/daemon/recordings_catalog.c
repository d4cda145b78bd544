/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/daemon/recordings_state.h"

/* ms after which the file system is expected to show freed space: some do so late. */
#define FREED_SHOWS 5000
/* ms between two log messages about removed files. */
#define LOG_INTERVAL 60000

struct recorded_domain *recordings_find(const struct recordings *all, const char *name)
{
	struct recorded_domain *domain = all->domains;

	while (domain && strcmp(domain->name, name) != 0)
		domain = domain->next;
	return domain;
}

struct recorded_domain *recordings_new_domain(struct recordings *all, const char *file,
					      const char *name)
{
	struct recorded_domain *domain = calloc(1, sizeof(*domain));

	if (domain)
		domain->name = strdup(name);
	if (!domain || !domain->name) {
		free(domain);
		error_set(-ENOMEM, "no memory for another domain");
		return NULL;
	}
	snprintf(domain->file, sizeof(domain->file), "%s", file);
	domain->next = all->domains;
	all->domains = domain;
	return domain;
}

void recorded_domain_free(struct recorded_domain *domain)
{
	free(domain->name);
	free(domain->files);
	free(domain);
}

static struct recorded_file *recorded_file_at(const struct recorded_domain *domain, size_t index)
{
	return &domain->files[domain->first + index];
}

void recorded_file_path(const struct recorded_domain *domain, uint64_t time,
			enum recording_state state, char path[RECORDING_PATH_SIZE])
{
	char name[RECORDING_NAME_SIZE];

	recording_file_name(time, state, name);
	snprintf(path, RECORDING_PATH_SIZE, "%s/%s", domain->file, name);
}

static enum recording_state recorded_file_state(const struct recorded_file *file)
{
	return file->is_new ? RECORDING_NEW : RECORDING_COMPLETE;
}

/* FILE is newer than all others. */
static int append(struct recorded_domain *domain, const struct recorded_file *file)
{
	size_t used = domain->first + domain->count;

	if (domain->first > domain->count) {
		memmove(domain->files, recorded_file_at(domain, 0),
			domain->count * sizeof(*domain->files));
		domain->first = 0;
		used = domain->count;
	}
	if (array_reserve(&domain->files, &domain->room, used + 1))
		return error_set(-ENOMEM, "no memory for the files of a domain");
	domain->files[used] = *file;
	domain->count++;
	domain->bytes += file->size;
	return 0;
}

int recordings_complete(struct recordings *all, struct recorded_domain *domain, uint64_t time)
{
	struct recorded_file entry = { .time = time, .is_new = all->options.hand_on };
	char partial[RECORDING_PATH_SIZE], path[RECORDING_PATH_SIZE];
	struct stat status;
	int error;

	recorded_file_path(domain, time, RECORDING_PARTIAL, partial);
	recorded_file_path(domain, time, recorded_file_state(&entry), path);
	if (fstatat(all->fd, partial, &status, AT_SYMLINK_NOFOLLOW) ||
	    renameat(all->fd, partial, all->fd, path))
		return error_set(-errno, "cannot rename %s/%s: %s", all->directory, partial,
				 strerror(errno));
	entry.size = (uint64_t)status.st_size;
	domain->partial = 0;
	error = append(domain, &entry);
	if (!error && entry.is_new)
		eventfd_write(all->new_fd, 1);
	return error;
}

/* Files of an earlier daemon. */

static int by_time(const void *left, const void *right)
{
	uint64_t a = ((const struct recorded_file *)left)->time,
		 b = ((const struct recorded_file *)right)->time;

	return (a > b) - (a < b);
}

/* Adds a file of an earlier daemon. A partial one is complete: nobody writes it. */
static int take_over(struct recordings *all, struct recorded_domain *domain, const char *name)
{
	struct recorded_file entry = { 0 };
	char from[RECORDING_PATH_SIZE], to[RECORDING_PATH_SIZE];
	enum recording_state state;
	struct stat status;

	if (!recording_file_parse(name, &entry.time, &state))
		return 0;
	entry.is_new = all->options.hand_on && state != RECORDING_COMPLETE;
	recorded_file_path(domain, entry.time, state, from);
	recorded_file_path(domain, entry.time, recorded_file_state(&entry), to);
	if (fstatat(all->fd, from, &status, AT_SYMLINK_NOFOLLOW) || !S_ISREG(status.st_mode))
		return 0;
	if (state != recorded_file_state(&entry) && renameat(all->fd, from, all->fd, to))
		return error_set(-errno, "cannot rename %s/%s: %s", all->directory, from,
				 strerror(errno));
	all->statistics.taken_over += state == RECORDING_PARTIAL;
	entry.size = (uint64_t)status.st_size;
	if (entry.is_new)
		eventfd_write(all->new_fd, 1);
	return append(domain, &entry);
}

static int take_over_files(struct recordings *all, struct recorded_domain *domain, DIR *directory)
{
	const struct dirent *file;
	int error = 0;

	while (!error && (file = readdir(directory)))
		error = take_over(all, domain, file->d_name);
	if (domain->count) {
		qsort(domain->files, domain->count, sizeof(*domain->files), by_time);
		domain->latest = recorded_file_at(domain, domain->count - 1)->time;
	}
	return error;
}

static int take_over_domain(struct recordings *all, const char *file)
{
	char name[RECORDING_DOMAIN_MAX + 1];
	struct recorded_domain *domain;
	DIR *directory;
	int fd, error;

	fd = recording_directory_open(all->fd, file);
	if (fd < 0)
		return 0; /* not ours, which was logged */
	if (recording_directory_domain(fd, file, name)) {
		log_warning("%s/%s is left alone: %s", all->directory, file, error_message());
		close(fd);
		return 0;
	}
	directory = fdopendir(fd);
	domain = directory ? recordings_new_domain(all, file, name) : NULL;
	error = domain ? take_over_files(all, domain, directory) : -ENOMEM;
	if (domain)
		domain->symbols = recording_symbols_size(all->fd, file);
	if (directory)
		closedir(directory);
	else
		close(fd);
	return error;
}

int recordings_take_over(struct recordings *all)
{
	DIR *directory = recording_directory_list(all->fd, ".");
	const struct dirent *file;
	int error = 0;

	if (!directory)
		return error_set(-errno, "cannot read %s: %s", all->directory, strerror(errno));
	while (!error && (file = readdir(directory)))
		if (*file->d_name != '.')
			error = take_over_domain(all, file->d_name);
	closedir(directory);
	return error;
}

/* Removing files. */

/* Forgets the file even if it cannot be unlinked. */
static void remove_oldest(struct recordings *all, struct recorded_domain *domain, uint64_t *counter)
{
	const struct recorded_file *oldest = recorded_file_at(domain, 0);
	char path[RECORDING_PATH_SIZE];

	recorded_file_path(domain, oldest->time, recorded_file_state(oldest), path);
	if (unlinkat(all->fd, path, 0) && errno != ENOENT)
		log_warning("cannot remove %s/%s: %s", all->directory, path, strerror(errno));
	++*counter;
	all->statistics.not_handed_on += oldest->is_new;
	domain->bytes -= oldest->size;
	domain->first++;
	domain->count--;
}

static bool is_beyond_limits(const struct recordings *all, const struct recorded_domain *domain,
			     uint64_t now)
{
	const struct recordings_options *options = &all->options;

	if (!domain->count)
		return false;
	return (options->max_size && domain->bytes + domain->symbols > options->max_size) ||
	       (options->max_age &&
		recorded_file_at(domain, 0)->time + options->max_age * 1000 < now);
}

void recordings_keep_limits(struct recordings *all, struct recorded_domain *domain)
{
	uint64_t now = clock_ms(CLOCK_REALTIME);

	while (is_beyond_limits(all, domain, now))
		remove_oldest(all, domain, &all->statistics.removed);
}

static uint64_t space_of(const struct recorded_domain *domain)
{
	return domain->bytes + domain->partial + domain->symbols;
}

/* True if DOMAIN uses its part of the space of all domains, or more. */
static bool has_its_share(const struct recordings *all, const struct recorded_domain *domain)
{
	uint64_t count = 0, sum = 0;

	for (const struct recorded_domain *one = all->domains; one; one = one->next) {
		count += space_of(one) > 0;
		sum += space_of(one);
	}
	return count && space_of(domain) >= sum / count;
}

/* The one that uses the most space, of WRITER and of those with complete files; at equal size
 * WRITER. NULL: none, or WRITER has no complete file. */
static struct recorded_domain *largest_domain(const struct recordings *all,
					      const struct recorded_domain *writer)
{
	struct recorded_domain *largest = NULL;

	for (struct recorded_domain *domain = all->domains; domain; domain = domain->next) {
		if (!domain->count && domain != writer)
			continue;
		if (!largest || space_of(domain) > space_of(largest) ||
		    (domain == writer && space_of(domain) == space_of(largest)))
			largest = domain;
	}
	return largest && largest->count ? largest : NULL;
}

/* The domain that makes room for WRITER: WRITER itself, unless it is smaller than most, as a new
 * domain is; it would keep one file as long as others have the disk. */
static struct recorded_domain *next_victim(const struct recordings *all,
					   struct recorded_domain *writer)
{
	if (writer && writer->count && has_its_share(all, writer))
		return writer;
	return largest_domain(all, writer);
}

/* A disk that stays full costs a file for each one that is recorded. */
static void log_sacrificed(struct recordings *all)
{
	uint64_t now = clock_ms(CLOCK_MONOTONIC);

	if (all->logged_at && now - all->logged_at < LOG_INTERVAL)
		return;
	log_warning("%s has no space: old recordings are removed, %llu since the start",
		    all->directory, (unsigned long long)all->statistics.sacrificed);
	all->logged_at = now;
}

/* Removes at least BYTES if possible. Returns the number of bytes. */
static uint64_t sacrifice(struct recordings *all, struct recorded_domain *writer, uint64_t bytes)
{
	uint64_t freed = 0;
	struct recorded_domain *domain;

	while (freed < bytes && (domain = next_victim(all, writer))) {
		freed += recorded_file_at(domain, 0)->size;
		remove_oldest(all, domain, &all->statistics.sacrificed);
	}
	if (freed)
		log_sacrificed(all);
	return freed;
}

uint64_t recordings_free_space(const struct recordings *all)
{
	struct statvfs status;

	return fstatvfs(all->fd, &status) ? UINT64_MAX
					  : (uint64_t)status.f_bavail * status.f_frsize;
}

uint64_t recordings_missing(struct recordings *all, uint64_t size)
{
	uint64_t wanted = all->options.reserve + size, have = recordings_free_space(all);

	if (have == UINT64_MAX) /* a write will fail if there is none */
		return 0;
	if (clock_ms(CLOCK_MONOTONIC) - all->freed_at > FREED_SHOWS)
		all->freed = 0;
	have += all->freed;
	return wanted > have ? wanted - have : 0;
}

int recordings_make_room(struct recordings *all, struct recorded_domain *writer, uint64_t size,
			 bool full)
{
	uint64_t wanted = full ? size : recordings_missing(all, size), freed;

	if (!wanted)
		return 0;
	freed = sacrifice(all, writer, wanted);
	all->freed += freed;
	all->freed_at = clock_ms(CLOCK_MONOTONIC);
	if (full ? freed > 0 : freed >= wanted)
		return 0;
	return error_set(
		-ENOSPC,
		"%s has no space, and no recordings may be removed for it; %llu MiB are reserved for others",
		all->directory, (unsigned long long)all->options.reserve >> 20);
}

/* Handing on. */

int recordings_new_fd(const struct recordings *all)
{
	return all->new_fd;
}

/* The files that wait are the latest of a domain: they are handed on in their order. NULL: none
 * waits. */
static struct recorded_file *first_new(const struct recorded_domain *domain)
{
	size_t index = domain->count;

	while (index && recorded_file_at(domain, index - 1)->is_new)
		index--;
	return index < domain->count ? recorded_file_at(domain, index) : NULL;
}

static void describe_file(const struct recordings *all, const struct recorded_domain *domain,
			  struct recordings_file *file)
{
	char path[RECORDING_PATH_SIZE];
	struct stat status;
	uint64_t changed;

	file->from = file->until = first_new(domain)->time;
	recorded_file_path(domain, file->from, RECORDING_NEW, path);
	if (!fstatat(all->fd, path, &status, AT_SYMLINK_NOFOLLOW)) {
		changed = (uint64_t)status.st_mtim.tv_sec * MS_PER_S +
			  (uint64_t)status.st_mtim.tv_nsec / NS_PER_MS;
		/* File systems use a clock that is a tick late, and clocks are set back. */
		file->until = changed > file->from ? changed : file->from;
	}
	snprintf(file->path, sizeof(file->path), "%s/%s", all->directory, path);
	snprintf(file->symbols, sizeof(file->symbols), "%s/%s/" RECORDING_NAMES, all->directory,
		 domain->file);
	snprintf(file->domain, sizeof(file->domain), "%s", domain->name);
}

/* The domain whose first waiting file is the oldest; NULL: there is none. */
static const struct recorded_domain *with_oldest_new(const struct recordings *all)
{
	const struct recorded_domain *oldest = NULL;

	for (const struct recorded_domain *domain = all->domains; domain; domain = domain->next)
		if (first_new(domain) &&
		    (!oldest || first_new(domain)->time < first_new(oldest)->time))
			oldest = domain;
	return oldest;
}

bool recordings_next(struct recordings *all, struct recordings_file *file)
{
	const struct recorded_domain *domain;
	eventfd_t ignored;

	pthread_mutex_lock(&all->lock);
	domain = with_oldest_new(all);
	if (domain)
		describe_file(all, domain, file);
	else
		eventfd_read(all->new_fd, &ignored);
	pthread_mutex_unlock(&all->lock);
	return domain;
}

static void mark_handed_on(struct recordings *all, const struct recorded_domain *domain,
			   struct recorded_file *entry)
{
	char from[RECORDING_PATH_SIZE], to[RECORDING_PATH_SIZE];

	recorded_file_path(domain, entry->time, RECORDING_NEW, from);
	recorded_file_path(domain, entry->time, RECORDING_COMPLETE, to);
	if (renameat(all->fd, from, all->fd,
		     to)) /* then it is handed on again after the next start */
		log_warning("cannot rename %s/%s: %s", all->directory, from, strerror(errno));
	entry->is_new = false;
}

void recordings_done(struct recordings *all, const struct recordings_file *file)
{
	const struct recorded_domain *domain;
	struct recorded_file *entry;

	pthread_mutex_lock(&all->lock);
	domain = recordings_find(all, file->domain);
	entry = domain ? first_new(domain) : NULL;
	if (entry && entry->time == file->from) /* otherwise it was removed meanwhile */
		mark_handed_on(all, domain, entry);
	pthread_mutex_unlock(&all->lock);
}
