// SPDX-License-Identifier: Apache-2.0
#include "vmm/daemon/recordings.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/daemon/old_names.h"
#include "vmm/daemon/recording_file.h"

/* A file is not begun where there is no more room than this besides the reserve. */
#define ROOM_TO_BEGIN (1ull << 20)
/* Some file systems show what was freed only later: so long, in ms, it is taken for free. */
#define FREED_SHOWS 5000
/* Names are not begun where there is no more room than this besides the reserve: those of a kernel, and its
 * code. */
#define ROOM_FOR_NAMES (64ull << 20)
/* ms between two looks at how many they are. */
#define NAMES_INTERVAL 10000
/* ms between two looks for those that no recording needs. */
#define NAMES_PRUNE_INTERVAL 600000
/* ms between two lines of the log about what went. */
#define SAY_INTERVAL 60000

/* A complete file. */
struct entry {
	uint64_t time; /* ms since 1970, when it was begun: its name */
	uint64_t size; /* bytes */
	bool is_new;   /* waits to be handed on */
};

struct domain {
	struct domain *next;
	char file[DOMAIN_FILE_SIZE]; /* its directory */
	char *name;                  /* owned */
	struct entry *entries;       /* owned; from FIRST on, the oldest first */
	size_t first, count, room;
	uint64_t bytes;  /* of all entries */
	uint64_t names;  /* bytes of its names, as they were last looked at */
	uint64_t latest; /* the time of its latest file, complete or not */
	bool recorded;   /* now */
};

struct recordings {
	struct recordings_options options;
	char *directory;          /* owned */
	int fd;                   /* of the directory, locked */
	int new_fd;               /* eventfd */
	pthread_mutex_t lock;     /* of all that follows, and of the domains */
	struct domain *domains;   /* owned */
	uint64_t freed, freed_at; /* bytes that may not show yet, ms */
	bool is_short;            /* of room; said */
	uint64_t said_at;         /* ms, that something went */
	struct recordings_statistics statistics;
};

struct recording {
	struct recordings *all;
	struct domain *domain;
	struct collector_files files;
	struct perf_data_room room;
	uint64_t time; /* of the file that is open */
	char directory[PATH_MAX], names_directory[PATH_MAX];
	struct build_id_cache_place names;
	uint64_t names_counted; /* ms, when they were; 0: never */
	int64_t begun;          /* s since 1970, by which names that are in use have been used */
	uint64_t next_prune;    /* ms; the thread's that prunes */
};

static uint64_t now_ms(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static struct entry *entry_at(const struct domain *domain, size_t index)
{
	return &domain->entries[domain->first + index];
}

/* Below the directory of all. */
static void path_of(const struct domain *domain, uint64_t time, enum recording_state state,
		    char path[RECORDING_PATH_SIZE])
{
	char name[RECORDING_NAME_SIZE];

	recording_file_name(time, state, name);
	snprintf(path, RECORDING_PATH_SIZE, "%s/%s", domain->file, name);
}

static enum recording_state state_of(const struct entry *entry)
{
	return entry->is_new ? RECORDING_NEW : RECORDING_COMPLETE;
}

/* Behind all others. */
static int append(struct domain *domain, const struct entry *entry)
{
	size_t used = domain->first + domain->count;

	if (domain->first > domain->count) {
		memmove(domain->entries, entry_at(domain, 0), domain->count * sizeof(*domain->entries));
		domain->first = 0;
		used = domain->count;
	}
	if (used == domain->room) {
		size_t room = domain->room ? 2 * domain->room : 16;
		struct entry *entries = reallocarray(domain->entries, room, sizeof(*entries));

		if (!entries)
			return error_set(-ENOMEM, "no memory for the files of a domain");
		domain->entries = entries;
		domain->room = room;
	}
	domain->entries[used] = *entry;
	domain->count++;
	domain->bytes += entry->size;
	return 0;
}

/* Also where the file can not be unlinked: it is out of our hands then. */
static void remove_oldest(struct recordings *all, struct domain *domain, uint64_t *counter)
{
	const struct entry *oldest = entry_at(domain, 0);
	char path[RECORDING_PATH_SIZE];

	path_of(domain, oldest->time, state_of(oldest), path);
	if (unlinkat(all->fd, path, 0) && errno != ENOENT)
		log_warning("can't remove %s/%s: %s", all->directory, path, strerror(errno));
	++*counter;
	all->statistics.not_handed_on += oldest->is_new;
	domain->bytes -= oldest->size;
	domain->first++;
	domain->count--;
}

static bool is_beyond_limits(const struct recordings *all, const struct domain *domain, uint64_t now)
{
	const struct recordings_options *options = &all->options;

	if (!domain->count)
		return false;
	return (options->max_size && domain->bytes + domain->names > options->max_size) ||
	       (options->max_age && entry_at(domain, 0)->time + options->max_age * 1000 < now);
}

static void keep_limits(struct recordings *all, struct domain *domain)
{
	uint64_t now = now_ms(CLOCK_REALTIME);

	while (is_beyond_limits(all, domain, now))
		remove_oldest(all, domain, &all->statistics.removed);
}

static struct domain *with_oldest(const struct recordings *all)
{
	struct domain *oldest = NULL;

	for (struct domain *domain = all->domains; domain; domain = domain->next)
		if (domain->count && (!oldest || entry_at(domain, 0)->time < entry_at(oldest, 0)->time))
			oldest = domain;
	return oldest;
}

/* A disk that stays full takes a file for each that is recorded. */
static void say_sacrificed(struct recordings *all)
{
	uint64_t now = now_ms(CLOCK_MONOTONIC);

	if (all->said_at && now - all->said_at < SAY_INTERVAL)
		return;
	log_warning("%s has no room: its oldest recordings go, %llu since the start", all->directory,
		    (unsigned long long)all->statistics.sacrificed);
	all->said_at = now;
}

/* At least BYTES, of the oldest files of any domain; how much it was. */
static uint64_t sacrifice(struct recordings *all, uint64_t bytes)
{
	uint64_t freed = 0;
	struct domain *domain;

	while (freed < bytes && (domain = with_oldest(all))) {
		freed += entry_at(domain, 0)->size;
		remove_oldest(all, domain, &all->statistics.sacrificed);
	}
	if (freed)
		say_sacrificed(all);
	return freed;
}

/* Bytes that are missing where SIZE more are wanted besides the reserve. */
static uint64_t missing(struct recordings *all, uint64_t size)
{
	uint64_t wanted = all->options.reserve + size, have;
	struct statvfs status;

	if (fstatvfs(all->fd, &status)) /* the write will tell */
		return 0;
	if (now_ms(CLOCK_MONOTONIC) - all->freed_at > FREED_SHOWS)
		all->freed = 0;
	have = (uint64_t)status.f_bavail * status.f_frsize + all->freed;
	return wanted > have ? wanted - have : 0;
}

static int make_room(struct recordings *all, uint64_t size, bool full)
{
	uint64_t wanted = full ? size : missing(all, size), freed;

	if (!wanted)
		return 0;
	freed = sacrifice(all, wanted);
	all->freed += freed;
	all->freed_at = now_ms(CLOCK_MONOTONIC);
	if (full ? freed > 0 : freed >= wanted)
		return 0;
	return error_set(
		-ENOSPC,
		"%s has no room, and there are no older recordings that could go; %llu MiB are left free for others",
		all->directory, (unsigned long long)all->options.reserve >> 20);
}

static int make_room_for_block(void *context, uint64_t size, bool full)
{
	struct recordings *all = context;
	int error;

	pthread_mutex_lock(&all->lock);
	error = make_room(all, size, full);
	pthread_mutex_unlock(&all->lock);
	return error;
}

/* Once, until there is room again. */
static void say_short(struct recordings *all, const struct domain *domain)
{
	if (!all->is_short)
		log_error("%s is not recorded until there is room: %s", domain->file, error_message());
	all->is_short = true;
}

/* Somebody may have removed it. */
static int need_directory(const struct recordings *all, const struct domain *domain)
{
	if (!faccessat(all->fd, domain->file, F_OK, AT_SYMLINK_NOFOLLOW))
		return 0;
	return recording_directory_make(all->fd, domain->file, domain->name);
}

static int begin_file(void *context, char *path, size_t size)
{
	struct recording *recording = context;
	struct recordings *all = recording->all;
	struct domain *domain = recording->domain;
	char file[RECORDING_PATH_SIZE];
	uint64_t now = now_ms(CLOCK_REALTIME);
	int error;

	pthread_mutex_lock(&all->lock);
	error = make_room(all, ROOM_TO_BEGIN, false);
	if (error)
		say_short(all, domain);
	else
		error = need_directory(all, domain);
	recording->time = now > domain->latest ? now : domain->latest + 1;
	domain->latest = recording->time;
	path_of(domain, recording->time, RECORDING_PARTIAL, file);
	pthread_mutex_unlock(&all->lock);
	snprintf(path, size, "%s/%s", all->directory, file);
	return error;
}

static void drop(struct recordings *all, const struct domain *domain, const char *partial,
		 const struct collector_file *file)
{
	if (unlinkat(all->fd, partial, 0) && errno != ENOENT)
		log_warning("can't remove %s/%s: %s", all->directory, partial, strerror(errno));
	if (!file->error)
		return; /* it has no samples */
	all->statistics.dropped++;
	say_short(all, domain);
}

/* The partial file of TIME is complete. */
static int complete(struct recordings *all, struct domain *domain, uint64_t time)
{
	struct entry entry = { .time = time, .is_new = all->options.hand_on };
	char partial[RECORDING_PATH_SIZE], path[RECORDING_PATH_SIZE];
	struct stat status;
	int error;

	path_of(domain, time, RECORDING_PARTIAL, partial);
	path_of(domain, time, state_of(&entry), path);
	if (fstatat(all->fd, partial, &status, AT_SYMLINK_NOFOLLOW) ||
	    renameat(all->fd, partial, all->fd, path))
		return error_set(-errno, "can't rename %s/%s: %s", all->directory, partial, strerror(errno));
	entry.size = (uint64_t)status.st_size;
	error = append(domain, &entry);
	if (!error && entry.is_new)
		eventfd_write(all->new_fd, 1);
	return error;
}

static void end_file(void *context, const struct collector_file *file)
{
	struct recording *recording = context;
	struct recordings *all = recording->all;
	char partial[RECORDING_PATH_SIZE];

	path_of(recording->domain, recording->time, RECORDING_PARTIAL, partial);
	pthread_mutex_lock(&all->lock);
	if (file->error || !file->samples) {
		drop(all, recording->domain, partial, file);
	} else if (complete(all, recording->domain, recording->time)) {
		log_warning("%s", error_message());
	} else {
		all->is_short = false;
		keep_limits(all, recording->domain);
	}
	pthread_mutex_unlock(&all->lock);
}

static void free_domain(struct domain *domain)
{
	free(domain->name);
	free(domain->entries);
	free(domain);
}

static struct domain *new_domain(struct recordings *all, const char *file, const char *name)
{
	struct domain *domain = calloc(1, sizeof(*domain));

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

static int by_time(const void *left, const void *right)
{
	uint64_t a = ((const struct entry *)left)->time, b = ((const struct entry *)right)->time;

	return (a > b) - (a < b);
}

/* A file that a former daemon left. What was partial is complete as it is: nobody writes it any more. */
static int take_over(struct recordings *all, struct domain *domain, const char *name)
{
	struct entry entry = { 0 };
	char from[RECORDING_PATH_SIZE], to[RECORDING_PATH_SIZE];
	enum recording_state state;
	struct stat status;

	if (!recording_file_parse(name, &entry.time, &state))
		return 0;
	entry.is_new = all->options.hand_on && state != RECORDING_COMPLETE;
	path_of(domain, entry.time, state, from);
	path_of(domain, entry.time, state_of(&entry), to);
	if (fstatat(all->fd, from, &status, AT_SYMLINK_NOFOLLOW) || !S_ISREG(status.st_mode))
		return 0;
	if (state != state_of(&entry) && renameat(all->fd, from, all->fd, to))
		return error_set(-errno, "can't rename %s/%s: %s", all->directory, from, strerror(errno));
	all->statistics.taken_over += state == RECORDING_PARTIAL;
	entry.size = (uint64_t)status.st_size;
	if (entry.is_new)
		eventfd_write(all->new_fd, 1);
	return append(domain, &entry);
}

static int take_over_files(struct recordings *all, struct domain *domain, DIR *directory)
{
	const struct dirent *file;
	int error = 0;

	while (!error && (file = readdir(directory)))
		error = take_over(all, domain, file->d_name);
	if (domain->count) {
		qsort(domain->entries, domain->count, sizeof(*domain->entries), by_time);
		domain->latest = entry_at(domain, domain->count - 1)->time;
	}
	return error;
}

static int take_over_domain(struct recordings *all, const char *file)
{
	char name[RECORDING_DOMAIN_MAX + 1];
	struct domain *domain;
	DIR *directory;
	int fd, error;

	fd = recording_directory_open(all->fd, file);
	if (fd < 0)
		return 0; /* none of ours; said */
	if (recording_directory_domain(fd, file, name)) {
		log_warning("%s/%s is left alone: %s", all->directory, file, error_message());
		close(fd);
		return 0;
	}
	directory = fdopendir(fd);
	domain = directory ? new_domain(all, file, name) : NULL;
	error = domain ? take_over_files(all, domain, directory) : -ENOMEM;
	if (domain)
		domain->names = recording_names_size(all->fd, file);
	if (directory)
		closedir(directory);
	else
		close(fd);
	return error;
}

static int take_over_all(struct recordings *all)
{
	int fd = openat(all->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
	DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *file;

	if (!directory)
		return error_set(-errno, "can't read %s: %s", all->directory, strerror(errno));
	while (!error && (file = readdir(directory)))
		if (*file->d_name != '.')
			error = take_over_domain(all, file->d_name);
	closedir(directory);
	return error;
}

static int open_directory(struct recordings *all)
{
	if (strlen(all->directory) + 1 + RECORDING_PATH_SIZE > PATH_MAX)
		return error_set(-ENAMETOOLONG, "%s is too long a name for a directory of recordings",
				 all->directory);
	if (mkdir(all->directory, 0700) && errno != EEXIST)
		return error_set(-errno, "can't make the directory %s: %s", all->directory, strerror(errno));
	all->fd = recording_directory_open(AT_FDCWD, all->directory);
	if (all->fd < 0)
		return all->fd;
	if (flock(all->fd, LOCK_EX | LOCK_NB))
		return error_set(-errno, "can't lock %s: %s; does another kvmscoped record into it?",
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
		return error_set(-errno, "can't make what tells of new recordings: %s", strerror(errno));
	error = open_directory(all);
	return error ? error : take_over_all(all);
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
		struct domain *domain = all->domains;

		assert(!domain->recorded);
		all->domains = domain->next;
		free_domain(domain);
	}
	if (all->fd >= 0)
		close(all->fd);
	if (all->new_fd >= 0)
		close(all->new_fd);
	pthread_mutex_destroy(&all->lock);
	free(all->directory);
	free(all);
}

static struct domain *find_domain(const struct recordings *all, const char *name)
{
	struct domain *domain = all->domains;

	while (domain && strcmp(domain->name, name) != 0)
		domain = domain->next;
	return domain;
}

/* The domain of NAME with its directory, whether there was one or not. */
static int make_domain(struct recordings *all, const char *name, struct domain **domain)
{
	char file[DOMAIN_FILE_SIZE];
	int error;

	*domain = find_domain(all, name);
	if (*domain && (*domain)->recorded)
		return error_set(-EBUSY, "%s is recorded already", (*domain)->file);
	domain_name_escape(name, file);
	error = recording_directory_make(all->fd, file, name);
	if (error || *domain)
		return error;
	*domain = new_domain(all, file, name);
	return *domain ? 0 : -ENOMEM;
}

/* Its collector's thread alone writes them. */
static void count_names(struct recording *recording)
{
	struct recordings *all = recording->all;
	uint64_t now = now_ms(CLOCK_MONOTONIC), bytes;

	if (recording->names_counted && now - recording->names_counted < NAMES_INTERVAL)
		return;
	bytes = recording_names_size(all->fd, recording->domain->file);
	pthread_mutex_lock(&all->lock);
	recording->domain->names = bytes;
	pthread_mutex_unlock(&all->lock);
	recording->names_counted = now;
}

/* With the lock. */
static int check_names(struct recordings *all, const struct domain *domain)
{
	if (missing(all, ROOM_FOR_NAMES))
		return error_set(-ENOSPC, "%s has no room for names besides the reserve", all->directory);
	if (all->options.max_size && domain->names > all->options.max_size / 2)
		return error_set(-EDQUOT,
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
 * With the lock: bytes of names that are too many. With less than the half there is room for more again; and
 * before recordings go, names that none needs do.
 */
static uint64_t names_too_many(const struct recordings *all, const struct domain *domain)
{
	uint64_t max = all->options.max_size, names = domain->names, all_bytes = domain->bytes + names;
	uint64_t beyond = names > max / 2 ? names - max / 8 * 3 : 0;

	if (!max)
		return 0;
	if (all_bytes > max / 16 * 15 && all_bytes - max / 8 * 7 > beyond)
		beyond = all_bytes - max / 8 * 7;
	return beyond < names ? beyond : names;
}

static void note_pruned(struct recordings *all, struct domain *domain,
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

void recording_prune_names(struct recording *recording)
{
	struct recordings *all = recording->all;
	uint64_t now = now_ms(CLOCK_MONOTONIC), beyond;
	struct old_names_removed removed;

	pthread_mutex_lock(&all->lock);
	beyond = names_too_many(all, recording->domain);
	pthread_mutex_unlock(&all->lock);
	if (!beyond || now < recording->next_prune)
		return;
	recording->next_prune = now + NAMES_PRUNE_INTERVAL;
	if (old_names_remove(recording->directory, recording->names_directory, recording->begun, beyond,
			     &removed))
		log_warning("no names of %s are removed: %s", recording->domain->file, error_message());
	else
		note_pruned(all, recording->domain, &removed);
}

static void describe(struct recordings *all, struct recording *recording)
{
	recording->all = all;
	snprintf(recording->directory, sizeof(recording->directory), "%s/%s", all->directory,
		 recording->domain->file);
	snprintf(recording->names_directory, sizeof(recording->names_directory), "%s/%s/" RECORDING_NAMES,
		 all->directory, recording->domain->file);
	recording->names =
		(struct build_id_cache_place){ recording->names_directory, may_write_names, recording };
	recording->room = (struct perf_data_room){ make_room_for_block, all };
	recording->files = (struct collector_files){
		.begin = begin_file,
		.end = end_file,
		.room = &recording->room,
		.interval = all->options.rotate * 1000000000,
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
	recording->begun = (int64_t)(now_ms(CLOCK_REALTIME) / 1000);
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

const struct build_id_cache_place *recording_names(const struct recording *recording)
{
	return &recording->names;
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

/* Domains come and go; a directory that has nothing left goes, too, unless there is something of others in
 * it. */
static void forget_empty(struct recordings *all)
{
	struct domain **link = &all->domains, *domain;

	while ((domain = *link)) {
		if (domain->recorded || domain->count) {
			link = &domain->next;
			continue;
		}
		recording_directory_remove(all->fd, domain->file, domain->name);
		*link = domain->next;
		free_domain(domain);
	}
}

void recordings_tidy(struct recordings *all)
{
	pthread_mutex_lock(&all->lock);
	for (struct domain *domain = all->domains; domain; domain = domain->next)
		keep_limits(all, domain);
	if (make_room(all, 0, false))
		log_debug("%s", error_message()); /* who writes next is told */
	forget_empty(all);
	pthread_mutex_unlock(&all->lock);
}

void recordings_statistics(struct recordings *all, struct recordings_statistics *statistics)
{
	pthread_mutex_lock(&all->lock);
	*statistics = all->statistics;
	for (const struct domain *domain = all->domains; domain; domain = domain->next) {
		statistics->files += domain->count;
		statistics->bytes += domain->bytes;
		statistics->names += domain->names;
	}
	pthread_mutex_unlock(&all->lock);
}

int recordings_new_fd(const struct recordings *all)
{
	return all->new_fd;
}

/* Those that wait are the latest of a domain: files are handed on in their order. NULL: none waits. */
static struct entry *first_new(const struct domain *domain)
{
	size_t index = domain->count;

	while (index && entry_at(domain, index - 1)->is_new)
		index--;
	return index < domain->count ? entry_at(domain, index) : NULL;
}

static struct domain *with_oldest_new(const struct recordings *all)
{
	struct domain *oldest = NULL;

	for (struct domain *domain = all->domains; domain; domain = domain->next)
		if (first_new(domain) && (!oldest || first_new(domain)->time < first_new(oldest)->time))
			oldest = domain;
	return oldest;
}

static void describe_file(const struct recordings *all, const struct domain *domain,
			  struct recordings_file *file)
{
	char path[RECORDING_PATH_SIZE];
	struct stat status;
	uint64_t changed;

	file->from = file->until = first_new(domain)->time;
	path_of(domain, file->from, RECORDING_NEW, path);
	if (!fstatat(all->fd, path, &status, AT_SYMLINK_NOFOLLOW)) {
		changed = (uint64_t)status.st_mtim.tv_sec * 1000 + (uint64_t)status.st_mtim.tv_nsec / 1000000;
		/* File systems go by a clock that is a tick behind, and clocks are set back. */
		file->until = changed > file->from ? changed : file->from;
	}
	snprintf(file->path, sizeof(file->path), "%s/%s", all->directory, path);
	snprintf(file->names, sizeof(file->names), "%s/%s/" RECORDING_NAMES, all->directory, domain->file);
	snprintf(file->domain, sizeof(file->domain), "%s", domain->name);
}

bool recordings_next(struct recordings *all, struct recordings_file *file)
{
	const struct domain *domain;
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

static void hand_on(struct recordings *all, const struct domain *domain, struct entry *entry)
{
	char from[RECORDING_PATH_SIZE], to[RECORDING_PATH_SIZE];

	path_of(domain, entry->time, RECORDING_NEW, from);
	path_of(domain, entry->time, RECORDING_COMPLETE, to);
	if (renameat(all->fd, from, all->fd, to)) /* it is handed on again after the next start */
		log_warning("can't rename %s/%s: %s", all->directory, from, strerror(errno));
	entry->is_new = false;
}

void recordings_done(struct recordings *all, const struct recordings_file *file)
{
	const struct domain *domain;
	struct entry *entry;

	pthread_mutex_lock(&all->lock);
	domain = find_domain(all, file->domain);
	entry = domain ? first_new(domain) : NULL;
	if (entry && entry->time == file->from) /* else it has gone meanwhile */
		hand_on(all, domain, entry);
	pthread_mutex_unlock(&all->lock);
}
