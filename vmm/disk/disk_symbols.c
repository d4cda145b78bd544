/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/disk_symbols.h"

#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/disk/disk_misses.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/build_id_cache_files.h"
#include "vmm/symbols/elf_file.h"
#include "vmm/symbols/symbol_paths.h"

/* Limit of images: a guest can map any number of files. */
#define IMAGES_MAX 4096
#define DISKS_MAX  16
/* Records between two checks of the time. */
#define RECORDS 1024

struct image {
	char *path; /* owned */
	uint8_t build_id[ELF_BUILD_ID_MAX];
	size_t build_id_size;
};

struct images {
	struct image *images;
	size_t count;
};

struct fetch {
	const struct disk_symbols_search *search;
	struct disk_symbols_result *result;
	const char *directory; /* of the cache */
	uint64_t deadline;     /* ms of CLOCK_MONOTONIC */
	struct images images;
	struct disk_misses misses;
	uint64_t records;
	struct guest_disk *disks[DISKS_MAX];
	size_t disk_count;
	uint64_t taken; /* bytes, of total_max */
};

static bool is_over(void *context)
{
	const struct fetch *fetch = context;
	const struct disk_symbols_search *search = fetch->search;

	return clock_ms(CLOCK_MONOTONIC) >= fetch->deadline ||
	       (search->is_enough && search->is_enough(search->context));
}

/* Called for every record, so that reading a long recording can be cancelled. */
static int check_time(struct fetch *fetch)
{
	return fetch->records++ % RECORDS == 0 && is_over(fetch) ? -ECANCELED : 0;
}

static int on_sample(void *context, const struct perf_data_sample *sample)
{
	return check_time(context);
}

static bool is_known(const struct images *images, const struct perf_data_mapping_event *mapping)
{
	for (size_t i = 0; i < images->count; i++)
		if (images->images[i].build_id_size == mapping->build_id_size &&
		    !memcmp(images->images[i].build_id, mapping->build_id, mapping->build_id_size))
			return true;
	return false;
}

/* A deleted file has no path on the disk. */
static bool may_be_on_disk(const char *name)
{
	const char *end = strrchr(name, ' ');

	return *name == '/' && !(end && !strcmp(end, " (deleted)"));
}

/* Collects the images of processes. */
static int on_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct fetch *fetch = context;
	struct images *images = &fetch->images;
	struct image *image;

	if (check_time(fetch))
		return -ECANCELED;
	if ((mapping->misc & PERF_RECORD_MISC_CPUMODE_MASK) != PERF_RECORD_MISC_USER ||
	    !may_be_on_disk(mapping->name) || !mapping->build_id_size ||
	    mapping->build_id_size > ELF_BUILD_ID_MAX || images->count == IMAGES_MAX ||
	    is_known(images, mapping))
		return 0;
	image = &images->images[images->count];
	*image = (struct image){ .path = strdup(mapping->name),
				 .build_id_size = mapping->build_id_size };
	memcpy(image->build_id, mapping->build_id, mapping->build_id_size);
	if (!image->path)
		return error_set(-ENOMEM, "no memory for the files of a recording");
	images->count++;
	return 0;
}

static int read_recording(struct fetch *fetch, const char *recording)
{
	const struct perf_data_events events = { .sample = on_sample,
						 .mapping = on_mapping,
						 .context = fetch };
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, recording);

	if (error)
		return error;
	error = perf_data_reader_run(reader, &events);
	perf_data_reader_close(reader);
	return error;
}

/* -ECANCELED: out of time. */
static int read_images(struct fetch *fetch)
{
	char path[PATH_MAX];
	int error = 0;

	fetch->images.images = calloc(IMAGES_MAX, sizeof(*fetch->images.images));
	if (!fetch->images.images)
		return error_set(-ENOMEM, "no memory for the files of a recording");
	for (unsigned int i = 0; i < fetch->search->files && !error; i++) {
		snprintf(path, sizeof(path), i ? "%s.%u" : "%s", fetch->search->recording, i);
		error = is_over(fetch) ? -ECANCELED : read_recording(fetch, path);
	}
	return error;
}

static bool lacks_functions(const struct fetch *fetch, const struct image *image)
{
	return !build_id_cache_has_whole_image(fetch->directory,
					       span_of(image->build_id, image->build_id_size)) &&
	       !disk_misses_has(&fetch->misses, span_of(image->build_id, image->build_id_size));
}

static void free_images(struct images *images)
{
	for (size_t i = 0; i < images->count; i++)
		free(images->images[i].path);
	free(images->images);
}

/* -ECANCELED: out of time. */
static int drop_complete(struct fetch *fetch)
{
	struct images *images = &fetch->images;
	size_t i = 0;

	while (i < images->count) {
		if (is_over(fetch))
			return -ECANCELED;
		if (lacks_functions(fetch, &images->images[i])) {
			i++;
			continue;
		}
		free(images->images[i].path);
		images->images[i] = images->images[--images->count];
	}
	return 0;
}

/* Keeps the message of a disk without permission, which the user can fix, over that of another
 * format. */
static void note_failure(struct disk_symbols_result *result, const char *disk, int error)
{
	bool refused = error == -EACCES || error == -EPERM;

	log_debug("%s", error_message());
	if (*result->why && !(refused && !result->refused))
		return;
	snprintf(result->why, sizeof(result->why), "%s", error_message());
	if (refused)
		result->refused = disk;
}

/* -ENOENT: grub-fstest is missing; -ECANCELED: out of time. */
static int open_disks(struct fetch *fetch, const struct guest_disk_limits *limits)
{
	const struct disk_symbols_search *search = fetch->search;

	if (!guest_disk_reader())
		return error_set(-ENOENT, "grub-fstest is missing (Debian package grub-common)");
	for (size_t i = 0; i < search->disk_count && fetch->disk_count < DISKS_MAX; i++) {
		int error =
			guest_disk_open(&fetch->disks[fetch->disk_count], search->disks[i], limits);

		if (error == -ECANCELED)
			return error;
		if (error)
			note_failure(fetch->result, search->disks[i], error);
		else
			fetch->disk_count++;
	}
	fetch->result->disks = (unsigned int)fetch->disk_count;
	return 0;
}

static void end_full(struct fetch *fetch, const char *why)
{
	log_warning("no more of the guest's programs and libraries are stored in %s: %s",
		    fetch->directory, why);
	fetch->result->full = true;
}

static void end_too_large(struct fetch *fetch, uint64_t total)
{
	char why[160];

	snprintf(
		why, sizeof(why),
		"they have %llu MiB of at most %llu, which leaves too little for a file of up to %llu; "
		"kvmscope report --guest-disk has a higher limit",
		(unsigned long long)fetch->taken >> 20, (unsigned long long)total >> 20,
		(unsigned long long)DISK_SYMBOLS_FILE_MAX >> 20);
	end_full(fetch, why);
}

bool disk_symbols_has_room(uint64_t size, uint64_t free_bytes)
{
	uint64_t reserve = size / 10 < DISK_SYMBOLS_FREE_MIN ? size / 10 : DISK_SYMBOLS_FREE_MIN;

	return free_bytes >= reserve + DISK_SYMBOLS_FILE_MAX;
}

/* The guest must not fill the host's disk. */
static void check_room(struct fetch *fetch)
{
	uint64_t total =
		fetch->search->total_max ? fetch->search->total_max : DISK_SYMBOLS_TOTAL_MAX;
	struct statvfs status;

	if (fetch->taken + DISK_SYMBOLS_FILE_MAX > total) {
		end_too_large(fetch, total);
		return;
	}
	/* A tmpfs may report no size. */
	if (!statvfs(fetch->directory, &status) && status.f_blocks &&
	    !disk_symbols_has_room((uint64_t)status.f_blocks * status.f_frsize,
				   (uint64_t)status.f_bavail * status.f_frsize))
		end_full(fetch, "its file system is nearly full");
}

static bool copy_from(struct fetch *fetch, struct guest_disk *disk, const struct image *image)
{
	struct bytes file;
	int result = guest_disk_read(disk, image->path,
				     span_of(image->build_id, image->build_id_size), &file);

	if (result)
		return false;
	fetch->taken += file.size;
	result = build_id_cache_replace_image(
		fetch->directory, span_of(image->build_id, image->build_id_size), &file);
	if (result < 0)
		end_full(fetch, error_message());
	free(file.data);
	return result > 0;
}

static bool copy(struct fetch *fetch, const struct image *image)
{
	log_progress("reading %s of the guest's disk", image->path);
	for (size_t i = 0; i < fetch->disk_count && !fetch->result->full; i++)
		if (copy_from(fetch, fetch->disks[i], image))
			return true;
	return false;
}

/* False if a missing file could be on an unreadable disk, or could not be stored. */
static bool has_searched_all(const struct fetch *fetch)
{
	return !fetch->result->full && fetch->disk_count == fetch->search->disk_count;
}

static int copy_all(struct fetch *fetch)
{
	for (size_t i = 0; i < fetch->images.count && fetch->disk_count; i++) {
		const struct image *image = &fetch->images.images[i];

		check_room(fetch);
		if (fetch->result->full)
			return 0;
		if (copy(fetch, image))
			fetch->result->found++;
		else if (is_over(fetch))
			return -ECANCELED;
		else if (fetch->search->once && has_searched_all(fetch))
			disk_misses_add(&fetch->misses,
					span_of(image->build_id, image->build_id_size));
	}
	return 0;
}

/* Existing files count against the limit, or repeated searches would exceed it. */
static uint64_t bytes_in(const char *directory)
{
	char root[PATH_MAX], *const roots[] = { root, NULL };
	const FTSENT *entry;
	uint64_t bytes = 0;
	FTS *tree;

	snprintf(root, sizeof(root), "%s", directory);
	tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	while (tree && (entry = fts_read(tree)))
		if (entry->fts_info == FTS_F)
			bytes += (uint64_t)entry->fts_statp->st_size;
	if (tree)
		fts_close(tree);
	return bytes;
}

static int copy_images(struct fetch *fetch)
{
	const struct guest_disk_limits limits = { .file_max = DISK_SYMBOLS_FILE_MAX,
						  .is_over = is_over,
						  .context = fetch,
						  .broker = fetch->search->broker };
	int error = open_disks(fetch, &limits);

	if (!error && fetch->disk_count)
		error = cache_make_directory(fetch->directory);
	if (!error && fetch->search->total_max)
		fetch->taken = bytes_in(fetch->directory);
	if (!error)
		error = copy_all(fetch);
	log_progress("%s", "");
	while (fetch->disk_count)
		guest_disk_close(fetch->disks[--fetch->disk_count]);
	return error;
}

static int search_disks(struct fetch *fetch)
{
	const struct disk_symbols_search *search = fetch->search;
	int error = read_images(fetch);

	if (!error && search->once)
		disk_misses_read(&fetch->misses, fetch->directory, search->disks,
				 search->disk_count);
	if (!error)
		error = drop_complete(fetch);
	if (error)
		return error;
	fetch->result->wanted = (unsigned int)fetch->images.count;
	return fetch->images.count ? copy_images(fetch) : 0;
}

int disk_symbols_fetch(const struct disk_symbols_search *search, struct disk_symbols_result *result)
{
	struct fetch fetch = { .search = search,
			       .result = result,
			       .directory = search->directory,
			       .deadline = clock_ms(CLOCK_MONOTONIC) + search->seconds * MS_PER_S };
	char standard[PATH_MAX];
	int error = 0;

	*result = (struct disk_symbols_result){ 0 };
	if (!fetch.directory) {
		error = build_id_cache_directory(standard, sizeof(standard));
		fetch.directory = standard;
	}
	if (!error)
		error = search_disks(&fetch);
	fetch.misses.changed &= !error || error == -ECANCELED;
	if (disk_misses_write(&fetch.misses, fetch.directory))
		log_debug("%s", error_message());
	free_images(&fetch.images);
	result->cut_short = error == -ECANCELED;
	return result->cut_short ? 0 : error;
}

static bool store(const char *directory, const char *recorded, struct span build_id,
		  const struct bytes *file)
{
	char standard[PATH_MAX];
	int result = 0;

	if (!directory) {
		result = build_id_cache_directory(standard, sizeof(standard));
		directory = standard;
	}
	if (!result)
		result = build_id_cache_replace_image(directory, build_id, file);
	if (result < 0)
		log_warning("cannot store %s from the guest's disk: %s", recorded, error_message());
	return result > 0;
}

bool disk_symbols_fetch_file(char *path, struct guest_disk *const *disks, size_t count,
			     const char *buildid_dir, const char *recorded, struct span build_id)
{
	struct bytes file;
	bool found = false;

	for (size_t i = 0; i < count && !found; i++) {
		log_progress("reading %s of the guest's disk", recorded);
		if (!guest_disk_read(disks[i], recorded, build_id, &file))
			found = store(buildid_dir, recorded, build_id, &file);
		free(file.data);
	}
	log_progress("%s", "");
	return found && symbol_paths_cached(path, buildid_dir, build_id, "elf");
}
