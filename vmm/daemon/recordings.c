// SPDX-License-Identifier: Apache-2.0
#include "vmm/daemon/recordings.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/daemon/old_names.h"
#include "vmm/daemon/recordings_state.h"

/* A file is not begun where there is no more room than this besides the reserve. */
#define ROOM_TO_BEGIN (1ull << 20)
/* Names are not begun where there is no more room than this besides the reserve: those of a kernel,
 * and its code. */
#define ROOM_FOR_NAMES (64ull << 20)
/* ms between two looks at how many they are. */
#define NAMES_INTERVAL 10000
/* ms between two looks for those that no recording needs. */
#define NAMES_PRUNE_INTERVAL 600000

struct recording {
	struct recordings *all;
	struct recorded_domain *domain;
	struct collector_files files;
	struct perf_data_room room;
	uint64_t time;  /* of the file that is open */
	bool was_short; /* of room when it was begun */
	char directory[PATH_MAX], names_directory[PATH_MAX];
	struct build_id_cache_location names;
	uint64_t names_counted; /* ms, when they were; 0: never */
	int64_t begun;          /* s since 1970, by which names that are in use have been used */
	uint64_t next_prune;    /* ms; the thread's that prunes */
};

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
	struct recorded_domain *domain = recorded_domain_create(file, name);

	if (!domain)
		return NULL;
	domain->next = all->domains;
	all->domains = domain;
	return domain;
}

static int make_room_for_block(void *context, uint64_t size, bool full)
{
	struct recordings *all = context;
	int error;

	pthread_mutex_lock(&all->lock);
	error = recordings_make_room(all, size, full);
	pthread_mutex_unlock(&all->lock);
	return error;
}

/* Once, until there is room again; it is that of all domains. */
static void say_short(struct recordings *all)
{
	if (!all->is_short)
		log_error("no domain is recorded until there is room: %s", error_message());
	all->is_short = true;
}

/* What was begun before tells nothing of the room that there is. */
static void note_room(struct recordings *all, const struct recording *recording)
{
	if (!recording->was_short)
		return;
	if (all->is_short)
		log_info("%s has room again: domains are recorded", all->directory);
	all->is_short = false;
}

/* Somebody may have removed it. */
static int need_directory(const struct recordings *all, const struct recorded_domain *domain)
{
	if (!faccessat(all->fd, domain->file, F_OK, AT_SYMLINK_NOFOLLOW))
		return 0;
	return recording_directory_make(all->fd, domain->file, domain->name);
}

static int begin_file(void *context, char *path, size_t size)
{
	struct recording *recording = context;
	struct recordings *all = recording->all;
	struct recorded_domain *domain = recording->domain;
	char file[RECORDING_PATH_SIZE];
	uint64_t now = clock_ms(CLOCK_REALTIME);
	int error;

	pthread_mutex_lock(&all->lock);
	error = recordings_make_room(all, ROOM_TO_BEGIN, false);
	recording->was_short = all->is_short;
	if (error)
		say_short(all);
	else
		error = need_directory(all, domain);
	recording->time = now > domain->latest ? now : domain->latest + 1;
	domain->latest = recording->time;
	recorded_file_path(domain, recording->time, RECORDING_PARTIAL, file);
	pthread_mutex_unlock(&all->lock);
	snprintf(path, size, "%s/%s", all->directory, file);
	return error;
}

static void drop(struct recordings *all, const char *partial, const struct collector_file *file)
{
	if (unlinkat(all->fd, partial, 0) && errno != ENOENT)
		log_warning("can't remove %s/%s: %s", all->directory, partial, strerror(errno));
	if (!file->error)
		return; /* it has no samples */
	all->statistics.dropped++;
	say_short(all);
}

/* The partial file of TIME is complete. */
static int complete(struct recordings *all, struct recorded_domain *domain, uint64_t time)
{
	struct recorded_file entry = { .time = time, .is_new = all->options.hand_on };
	char partial[RECORDING_PATH_SIZE], path[RECORDING_PATH_SIZE];
	struct stat status;
	int error;

	recorded_file_path(domain, time, RECORDING_PARTIAL, partial);
	recorded_file_path(domain, time, recorded_file_state(&entry), path);
	if (fstatat(all->fd, partial, &status, AT_SYMLINK_NOFOLLOW) ||
	    renameat(all->fd, partial, all->fd, path))
		return error_set(-errno, "can't rename %s/%s: %s", all->directory, partial,
				 strerror(errno));
	entry.size = (uint64_t)status.st_size;
	error = recorded_domain_append(domain, &entry);
	if (!error && entry.is_new)
		eventfd_write(all->new_fd, 1);
	return error;
}

static void end_file(void *context, const struct collector_file *file)
{
	struct recording *recording = context;
	struct recordings *all = recording->all;
	char partial[RECORDING_PATH_SIZE];

	recorded_file_path(recording->domain, recording->time, RECORDING_PARTIAL, partial);
	pthread_mutex_lock(&all->lock);
	if (file->error || !file->samples) {
		drop(all, partial, file);
	} else if (complete(all, recording->domain, recording->time)) {
		log_warning("%s", error_message());
	} else {
		note_room(all, recording);
		recordings_keep_limits(all, recording->domain);
	}
	pthread_mutex_unlock(&all->lock);
}

static int open_directory(struct recordings *all)
{
	if (strlen(all->directory) + 1 + RECORDING_PATH_SIZE > PATH_MAX)
		return error_set(-ENAMETOOLONG,
				 "%s is too long a name for a directory of recordings",
				 all->directory);
	if (mkdir(all->directory, 0700) && errno != EEXIST)
		return error_set(-errno, "can't make the directory %s: %s", all->directory,
				 strerror(errno));
	all->fd = recording_directory_open(AT_FDCWD, all->directory);
	if (all->fd < 0)
		return all->fd;
	if (flock(all->fd, LOCK_EX | LOCK_NB))
		return error_set(-errno,
				 "can't lock %s: %s; does another kvmscoped record into it?",
				 all->directory, strerror(errno));
	return 0;
}

static int open_all(struct recordings *all, const char *directory)
{
	int error;

	all->directory = strdup(directory);
	if (!all->directory)
		return error_set(-ENOMEM, "no memory for recordings");
	all->new_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (all->new_fd < 0)
		return error_set(-errno, "can't make what tells of new recordings: %s",
				 strerror(errno));
	error = open_directory(all);
	return error ? error : recordings_take_over(all);
}

int recordings_open(struct recordings **result, const struct recordings_options *options)
{
	struct recordings *all = calloc(1, sizeof(*all));
	int error;

	assert(options->rotate);
	if (!all)
		return error_set(-ENOMEM, "no memory for recordings");
	all->options = *options;
	all->fd = all->new_fd = -1;
	pthread_mutex_init(&all->lock, NULL);
	error = open_all(all, options->directory);
	if (error) {
		recordings_close(all);
		return error;
	}
	recordings_tidy(all);
	*result = all;
	return 0;
}

void recordings_close(struct recordings *all)
{
	if (!all)
		return;
	while (all->domains) {
		struct recorded_domain *domain = all->domains;

		assert(!domain->recorded);
		all->domains = domain->next;
		recorded_domain_free(domain);
	}
	if (all->fd >= 0)
		close(all->fd);
	if (all->new_fd >= 0)
		close(all->new_fd);
	pthread_mutex_destroy(&all->lock);
	free(all->directory);
	free(all);
}

/* The domain of NAME with its directory, whether there was one or not. */
static int make_domain(struct recordings *all, const char *name, struct recorded_domain **domain)
{
	char file[DOMAIN_FILE_SIZE];
	int error;

	*domain = recordings_find(all, name);
	if (*domain && (*domain)->recorded)
		return error_set(-EBUSY, "%s is recorded already", (*domain)->file);
	domain_name_escape(name, file);
	if (recordings_make_room(all, ROOM_TO_BEGIN, false))
		log_debug("%s", error_message()); /* a name may find room where a file does not */
	error = recording_directory_make(all->fd, file, name);
	if (error || *domain)
		return error;
	*domain = recordings_new_domain(all, file, name);
	return *domain ? 0 : -ENOMEM;
}

/* Its collector's thread alone writes them. */
static void count_names(struct recording *recording)
{
	struct recordings *all = recording->all;
	uint64_t now = clock_ms(CLOCK_MONOTONIC), bytes;

	if (recording->names_counted && now - recording->names_counted < NAMES_INTERVAL)
		return;
	bytes = recording_names_size(all->fd, recording->domain->file);
	pthread_mutex_lock(&all->lock);
	recording->domain->names = bytes;
	pthread_mutex_unlock(&all->lock);
	recording->names_counted = now;
}

/* With the lock. */
static int check_names(struct recordings *all, const struct recorded_domain *domain)
{
	if (recordings_missing(all, ROOM_FOR_NAMES))
		return error_set(-ENOSPC, "%s has no room for names besides the reserve",
				 all->directory);
	if (all->options.max_size && domain->names > all->options.max_size / 2)
		return error_set(
			-EDQUOT,
			"the names of %s are half of what it may have: remove %s/%s/" RECORDING_NAMES
			", or allow more",
			domain->file, all->directory, domain->file);
	return 0;
}

static bool may_write_names(void *context)
{
	struct recording *recording = context;
	int error;

	count_names(recording);
	pthread_mutex_lock(&recording->all->lock);
	error = check_names(recording->all, recording->domain);
	pthread_mutex_unlock(&recording->all->lock);
	return !error;
}

/*
 * With the lock: bytes of names that are too many. With less than the half there is room for more
 * again; and before recordings go, names that none needs do.
 */
static uint64_t names_too_many(const struct recordings *all, const struct recorded_domain *domain)
{
	uint64_t max = all->options.max_size, names = domain->names,
		 all_bytes = domain->bytes + names;
	uint64_t beyond = names > max / 2 ? names - max / 8 * 3 : 0;

	if (!max)
		return 0;
	if (all_bytes > max / 16 * 15 && all_bytes - max / 8 * 7 > beyond)
		beyond = all_bytes - max / 8 * 7;
	return beyond < names ? beyond : names;
}

static void note_pruned(struct recordings *all, struct recorded_domain *domain,
			const struct old_names_removed *removed)
{
	uint64_t bytes = recording_names_size(all->fd, domain->file);

	log_debug("%s: names of %llu builds went, %llu KiB", domain->file,
		  (unsigned long long)removed->builds, (unsigned long long)removed->bytes >> 10);
	pthread_mutex_lock(&all->lock);
	domain->names = bytes;
	all->statistics.names_removed += removed->builds;
	pthread_mutex_unlock(&all->lock);
}

void recording_prune_symbols(struct recording *recording)
{
	struct recordings *all = recording->all;
	uint64_t now = clock_ms(CLOCK_MONOTONIC), beyond;
	struct old_names_removed removed;

	pthread_mutex_lock(&all->lock);
	beyond = names_too_many(all, recording->domain);
	pthread_mutex_unlock(&all->lock);
	if (!beyond || now < recording->next_prune)
		return;
	recording->next_prune = now + NAMES_PRUNE_INTERVAL;
	if (old_names_remove(recording->directory, recording->names_directory, recording->begun,
			     beyond, &removed))
		log_warning("no names of %s are removed: %s", recording->domain->file,
			    error_message());
	else
		note_pruned(all, recording->domain, &removed);
}

static void describe(struct recordings *all, struct recording *recording)
{
	recording->all = all;
	snprintf(recording->directory, sizeof(recording->directory), "%s/%s", all->directory,
		 recording->domain->file);
	snprintf(recording->names_directory, sizeof(recording->names_directory),
		 "%s/%s/" RECORDING_NAMES, all->directory, recording->domain->file);
	recording->names = (struct build_id_cache_location){ recording->names_directory,
							     may_write_names, recording };
	recording->room = (struct perf_data_room){ make_room_for_block, all };
	recording->files = (struct collector_files){
		.begin = begin_file,
		.end = end_file,
		.room = &recording->room,
		.interval = all->options.rotate * NS_PER_S,
		.context = recording,
	};
}

int recordings_add(struct recordings *all, const char *name, struct recording **result)
{
	struct recording *recording;
	int error;

	if (strlen(name) > RECORDING_DOMAIN_MAX)
		return error_set(-ENAMETOOLONG, "a domain whose name has %zu bytes is not recorded",
				 strlen(name));
	recording = calloc(1, sizeof(*recording));
	if (!recording)
		return error_set(-ENOMEM, "no memory for another recording");
	recording->begun = (int64_t)(clock_ms(CLOCK_REALTIME) / 1000);
	pthread_mutex_lock(&all->lock);
	error = make_domain(all, name, &recording->domain);
	if (!error) {
		recording->domain->recorded = true;
		recording->domain->names = recording_names_size(all->fd, recording->domain->file);
	}
	pthread_mutex_unlock(&all->lock);
	if (error) {
		free(recording);
		return error;
	}
	describe(all, recording);
	*result = recording;
	return 0;
}

const struct collector_files *recording_files(const struct recording *recording)
{
	return &recording->files;
}

const struct build_id_cache_location *recording_symbols(const struct recording *recording)
{
	return &recording->names;
}

static bool is_of(const char *name, const char *prefix, bool complete)
{
	enum recording_state state;
	uint64_t begun;

	if (prefix)
		return !strncmp(name, prefix, strlen(prefix)) && strstr(name, ".perf.data");
	return recording_file_parse(name, &begun, &state) &&
	       (!complete || state != RECORDING_PARTIAL);
}

/* Files of one kind have names that sort by time. */
static void find_latest(const char *directory, const char *prefix, bool complete,
			char latest[NAME_MAX + 1])
{
	DIR *entries = opendir(directory);
	const struct dirent *entry;

	*latest = '\0';
	while (entries && (entry = readdir(entries)))
		if (is_of(entry->d_name, prefix, complete) && strcmp(entry->d_name, latest) > 0)
			snprintf(latest, NAME_MAX + 1, "%s", entry->d_name);
	if (entries)
		closedir(entries);
}

int recording_latest(const struct recording *recording, const char *prefix, bool complete,
		     char path[PATH_MAX])
{
	char latest[NAME_MAX + 1] = "";

	if (complete)
		find_latest(recording->directory, prefix, true, latest);
	if (!*latest)
		find_latest(recording->directory, prefix, false, latest);
	if (!*latest || snprintf(path, PATH_MAX, "%s/%s", recording->directory, latest) >= PATH_MAX)
		return error_set(-ENOENT, "%s has no recording yet", recording->directory);
	return 0;
}

const char *recording_directory(const struct recording *recording)
{
	return recording->directory;
}

void recordings_remove(struct recordings *all, struct recording *recording)
{
	pthread_mutex_lock(&all->lock);
	recording->domain->recorded = false;
	pthread_mutex_unlock(&all->lock);
	free(recording);
}

/* Domains come and go; a directory that has nothing left goes, too, unless there is something of
 * others in it. */
static void forget_empty(struct recordings *all)
{
	struct recorded_domain **link = &all->domains, *domain;

	while ((domain = *link)) {
		if (domain->recorded || domain->count) {
			link = &domain->next;
			continue;
		}
		recording_directory_remove(all->fd, domain->file, domain->name);
		*link = domain->next;
		recorded_domain_free(domain);
	}
}

void recordings_tidy(struct recordings *all)
{
	pthread_mutex_lock(&all->lock);
	for (struct recorded_domain *domain = all->domains; domain; domain = domain->next)
		recordings_keep_limits(all, domain);
	if (recordings_make_room(all, 0, false))
		log_debug("%s", error_message()); /* who writes next is told */
	forget_empty(all);
	pthread_mutex_unlock(&all->lock);
}

void recordings_statistics(struct recordings *all, struct recordings_statistics *statistics)
{
	pthread_mutex_lock(&all->lock);
	*statistics = all->statistics;
	for (const struct recorded_domain *domain = all->domains; domain; domain = domain->next) {
		statistics->files += domain->count;
		statistics->bytes += domain->bytes;
		statistics->names += domain->names;
	}
	pthread_mutex_unlock(&all->lock);
}
