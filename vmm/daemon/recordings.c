/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/recordings.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/daemon/prune_symbols.h"
#include "vmm/daemon/recordings_state.h"

/* Least space besides the reserve for beginning a file, in bytes. */
#define ROOM_TO_BEGIN (1ull << 20)
/* Least space besides the reserve for writing symbols: those of a kernel, and its code. */
#define ROOM_FOR_SYMBOLS (64ull << 20)
/* ms between two counts of the symbols' size. */
#define COUNT_INTERVAL 10000
/* ms between two searches for symbols that no recording needs. */
#define PRUNE_INTERVAL 600000

struct recording {
	struct recordings *all;
	struct recorded_domain *domain;
	struct collector_files files;
	struct perf_data_room room;
	uint64_t time;  /* of the file that is open, or was; 0: none */
	bool was_short; /* there was no space when it was begun */
	char directory[PATH_MAX], symbols_directory[PATH_MAX];
	struct build_id_cache_location cache;
	uint64_t symbols_counted; /* ms, when they were counted; 0: never */
	int64_t begun;            /* s since 1970; symbols in use have been used since */
	uint64_t next_prune;      /* ms; used by the thread that prunes */
};

static int make_room_for_block(void *context, uint64_t size, bool full)
{
	struct recording *recording = context;
	struct recordings *all = recording->all;
	int error;

	pthread_mutex_lock(&all->lock);
	error = recordings_make_room(all, recording->domain, size, full);
	if (!error && !full && recording->time) /* flight recordings are not counted */
		recording->domain->partial += size;
	pthread_mutex_unlock(&all->lock);
	return error;
}

/* Logged once until there is space, which all domains share. */
static void log_short(struct recordings *all)
{
	if (!all->is_short)
		log_error("no domain is recorded until there is space: %s", error_message());
	all->is_short = true;
}

/* A file that was begun earlier does not show that there is space now. */
static void note_room(struct recordings *all, const struct recording *recording)
{
	if (!recording->was_short)
		return;
	if (all->is_short)
		log_info("%s has space again: domains are recorded", all->directory);
	all->is_short = false;
}

/* Creates the directory if somebody has removed it. */
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
	domain->partial = 0;
	error = recordings_make_room(all, domain, ROOM_TO_BEGIN, false);
	recording->was_short = all->is_short;
	if (error)
		log_short(all);
	else
		error = need_directory(all, domain);
	recording->time = now > domain->latest ? now : domain->latest + 1;
	domain->latest = recording->time;
	recorded_file_path(domain, recording->time, RECORDING_PARTIAL, file);
	pthread_mutex_unlock(&all->lock);
	snprintf(path, size, "%s/%s", all->directory, file);
	return error;
}

static void drop(struct recordings *all, struct recorded_domain *domain, const char *partial,
		 const struct collector_file *file)
{
	domain->partial = 0;
	if (unlinkat(all->fd, partial, 0) && errno != ENOENT)
		log_warning("cannot remove %s/%s: %s", all->directory, partial, strerror(errno));
	if (!file->error)
		return; /* it has no samples */
	all->statistics.dropped++;
	if (!all->is_short)
		log_error("a recording of %s is dropped: %s", domain->file, error_message());
	all->is_short = true;
}

static void end_file(void *context, const struct collector_file *file)
{
	struct recording *recording = context;
	struct recordings *all = recording->all;
	char partial[RECORDING_PATH_SIZE];

	recorded_file_path(recording->domain, recording->time, RECORDING_PARTIAL, partial);
	pthread_mutex_lock(&all->lock);
	if (file->error || !file->samples) {
		drop(all, recording->domain, partial, file);
	} else if (recordings_complete(all, recording->domain, recording->time)) {
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
				 "the path %s is too long for a directory of recordings",
				 all->directory);
	all->fd = recording_directory_claim(all->directory);
	return all->fd < 0 ? all->fd : 0;
}

static int open_all(struct recordings *all, const char *directory)
{
	int error;

	all->directory = strdup(directory);
	if (!all->directory)
		return error_set(-ENOMEM, "no memory for recordings");
	all->new_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (all->new_fd < 0)
		return error_set(-errno, "cannot create an eventfd: %s", strerror(errno));
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

/* Finds or adds the domain NAME, with its directory. */
static int make_domain(struct recordings *all, const char *name, struct recorded_domain **domain)
{
	char file[DOMAIN_FILE_SIZE];
	int error;

	*domain = recordings_find(all, name);
	if (*domain && (*domain)->recorded)
		return error_set(-EBUSY, "%s is recorded already", (*domain)->file);
	domain_name_escape(name, file);
	if (recordings_make_room(all, *domain, ROOM_TO_BEGIN, false))
		log_debug("%s", error_message()); /* a directory may fit where a file does not */
	error = recording_directory_make(all->fd, file, name);
	if (error || *domain)
		return error;
	*domain = recordings_new_domain(all, file, name);
	return *domain ? 0 : -ENOMEM;
}

/* Only the collector's thread writes symbols. */
static void count_symbols(struct recording *recording)
{
	struct recordings *all = recording->all;
	uint64_t now = clock_ms(CLOCK_MONOTONIC), bytes;

	if (recording->symbols_counted && now - recording->symbols_counted < COUNT_INTERVAL)
		return;
	bytes = recording_symbols_size(all->fd, recording->domain->file);
	pthread_mutex_lock(&all->lock);
	recording->domain->symbols = bytes;
	pthread_mutex_unlock(&all->lock);
	recording->symbols_counted = now;
}

/* With the lock held. */
static int check_symbols(struct recordings *all, const struct recorded_domain *domain)
{
	if (recordings_missing(all, ROOM_FOR_SYMBOLS))
		return error_set(-ENOSPC, "%s has no space for symbols besides the reserve",
				 all->directory);
	if (all->options.max_size && domain->symbols > all->options.max_size / 2)
		return error_set(
			-EDQUOT,
			"the symbols of %s use half of what it may have: remove %s/%s/" RECORDING_NAMES
			", or allow more",
			domain->file, all->directory, domain->file);
	return 0;
}

static bool may_write_symbols(void *context)
{
	struct recording *recording = context;
	int error;

	count_symbols(recording);
	pthread_mutex_lock(&recording->all->lock);
	error = check_symbols(recording->all, recording->domain);
	pthread_mutex_unlock(&recording->all->lock);
	return !error;
}

/* With the lock held. Bytes of symbols to remove. Removing more than the excess over one half
 * leaves space for a while, and unneeded symbols are removed before recordings. */
static uint64_t excess_symbols(const struct recordings *all, const struct recorded_domain *domain)
{
	uint64_t max = all->options.max_size, symbols = domain->symbols,
		 all_bytes = domain->bytes + symbols;
	uint64_t beyond = symbols > max / 2 ? symbols - max / 8 * 3 : 0;

	if (!max)
		return 0;
	if (all_bytes > max / 16 * 15 && all_bytes - max / 8 * 7 > beyond)
		beyond = all_bytes - max / 8 * 7;
	return beyond < symbols ? beyond : symbols;
}

static void note_pruned(struct recordings *all, struct recorded_domain *domain,
			const struct pruned_symbols *removed)
{
	uint64_t bytes = recording_symbols_size(all->fd, domain->file);

	log_debug("%s: removed the symbols of %llu builds, %llu KiB", domain->file,
		  (unsigned long long)removed->builds, (unsigned long long)removed->bytes >> 10);
	pthread_mutex_lock(&all->lock);
	domain->symbols = bytes;
	all->statistics.symbols_removed += removed->builds;
	pthread_mutex_unlock(&all->lock);
}

void recording_prune_symbols(struct recording *recording)
{
	struct recordings *all = recording->all;
	uint64_t now = clock_ms(CLOCK_MONOTONIC), beyond;
	struct pruned_symbols removed;

	pthread_mutex_lock(&all->lock);
	beyond = excess_symbols(all, recording->domain);
	pthread_mutex_unlock(&all->lock);
	if (!beyond || now < recording->next_prune)
		return;
	recording->next_prune = now + PRUNE_INTERVAL;
	if (prune_symbols(recording->directory, recording->symbols_directory, recording->begun,
			  beyond, &removed))
		log_warning("no symbols of %s are removed: %s", recording->domain->file,
			    error_message());
	else
		note_pruned(all, recording->domain, &removed);
}

static void describe(struct recordings *all, struct recording *recording)
{
	recording->all = all;
	snprintf(recording->directory, sizeof(recording->directory), "%s/%s", all->directory,
		 recording->domain->file);
	snprintf(recording->symbols_directory, sizeof(recording->symbols_directory),
		 "%s/%s/" RECORDING_NAMES, all->directory, recording->domain->file);
	recording->cache = (struct build_id_cache_location){ recording->symbols_directory,
							     may_write_symbols, recording };
	recording->room = (struct perf_data_room){ make_room_for_block, recording };
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
		recording->domain->symbols =
			recording_symbols_size(all->fd, recording->domain->file);
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
	return &recording->cache;
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

/* Forgets domains without files, and removes their directories unless they contain other files. */
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
	if (recordings_make_room(all, NULL, 0, false))
		log_debug("%s", error_message()); /* the next writer gets the error */
	forget_empty(all);
	pthread_mutex_unlock(&all->lock);
}

void recordings_statistics(struct recordings *all, struct recordings_statistics *statistics)
{
	pthread_mutex_lock(&all->lock);
	*statistics = all->statistics;
	statistics->free = recordings_free_space(all);
	statistics->reserve = all->options.reserve;
	for (const struct recorded_domain *domain = all->domains; domain; domain = domain->next) {
		statistics->files += domain->count;
		statistics->bytes += domain->bytes;
		statistics->symbols += domain->symbols;
	}
	pthread_mutex_unlock(&all->lock);
}
