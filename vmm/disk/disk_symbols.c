// SPDX-License-Identifier: Apache-2.0
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

/* A guest can map as many files as it likes. */
#define IMAGES_MAX 4096
#define DISKS_MAX  16
/* Records between two looks at the clock. */
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

struct hunt {
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
	const struct hunt *hunt = context;
	const struct disk_symbols_search *search = hunt->search;

	return clock_ms(CLOCK_MONOTONIC) >= hunt->deadline ||
	       (search->is_enough && search->is_enough(search->context));
}

/* Of each record, or a long recording could not be left. */
static int see_record(struct hunt *hunt)
{
	return hunt->records++ % RECORDS == 0 && is_over(hunt) ? -ECANCELED : 0;
}

static int see_sample(void *context, const struct perf_data_sample *sample)
{
	(void)sample;
	return see_record(context);
}

static bool is_known(const struct images *images, const struct perf_data_mapping_event *mapping)
{
	for (size_t i = 0; i < images->count; i++)
		if (images->images[i].build_id_size == mapping->build_id_size &&
		    !memcmp(images->images[i].build_id, mapping->build_id, mapping->build_id_size))
			return true;
	return false;
}

/* One whose name is gone is not. */
static bool may_be_on_disk(const char *name)
{
	const char *end = strrchr(name, ' ');

	return *name == '/' && !(end && !strcmp(end, " (deleted)"));
}

/* Of what a process has mapped. */
static int see_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct hunt *hunt = context;
	struct images *images = &hunt->images;
	struct image *image;

	if (see_record(hunt))
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

static int read_recording(struct hunt *hunt, const char *recording)
{
	const struct perf_data_events events = { .sample = see_sample,
						 .mapping = see_mapping,
						 .context = hunt };
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, recording);

	if (error)
		return error;
	error = perf_data_reader_run(reader, &events);
	perf_data_reader_close(reader);
	return error;
}

/* -ECANCELED: there is no time. */
static int read_images(struct hunt *hunt)
{
	char path[PATH_MAX];
	int error = 0;

	hunt->images.images = calloc(IMAGES_MAX, sizeof(*hunt->images.images));
	if (!hunt->images.images)
		return error_set(-ENOMEM, "no memory for the files of a recording");
	for (unsigned int i = 0; i < hunt->search->files && !error; i++) {
		snprintf(path, sizeof(path), i ? "%s.%u" : "%s", hunt->search->recording, i);
		error = is_over(hunt) ? -ECANCELED : read_recording(hunt, path);
	}
	return error;
}

static bool is_wanted(const struct hunt *hunt, const struct image *image)
{
	return !build_id_cache_has_whole_image(hunt->directory, image->build_id,
					       image->build_id_size) &&
	       !disk_misses_has(&hunt->misses, image->build_id, image->build_id_size);
}

static void free_images(struct images *images)
{
	for (size_t i = 0; i < images->count; i++)
		free(images->images[i].path);
	free(images->images);
}

/* -ECANCELED: there is no time. */
static int keep_wanted(struct hunt *hunt)
{
	struct images *images = &hunt->images;
	size_t i = 0;

	while (i < images->count) {
		if (is_over(hunt))
			return -ECANCELED;
		if (is_wanted(hunt, &images->images[i])) {
			i++;
			continue;
		}
		free(images->images[i].path);
		images->images[i] = images->images[--images->count];
	}
	return 0;
}

/* A disk that may not be read is what the user can do something about, more than one of another
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

/* -ENOENT: there is no program that could read any. -ECANCELED: there is no time. */
static int open_disks(struct hunt *hunt, const struct guest_disk_limits *limits)
{
	const struct disk_symbols_search *search = hunt->search;

	if (!guest_disk_reader())
		return error_set(-ENOENT, "grub-fstest is missing (Debian package grub-common)");
	for (size_t i = 0; i < search->disk_count && hunt->disk_count < DISKS_MAX; i++) {
		int error =
			guest_disk_open(&hunt->disks[hunt->disk_count], search->disks[i], limits);

		if (error == -ECANCELED)
			return error;
		if (error)
			note_failure(hunt->result, search->disks[i], error);
		else
			hunt->disk_count++;
	}
	hunt->result->disks = (unsigned int)hunt->disk_count;
	return 0;
}

static void end_full(struct hunt *hunt, const char *why)
{
	log_warning("no more of the guest's programs and libraries are kept in %s: %s",
		    hunt->directory, why);
	hunt->result->full = true;
}

static void end_too_large(struct hunt *hunt, uint64_t total)
{
	char why[160];

	snprintf(
		why, sizeof(why),
		"with one more, of %llu MiB at most, they could have more than %llu MiB, and have %llu; "
		"kvmscope report --guest-disk takes more",
		(unsigned long long)DISK_SYMBOLS_FILE_MAX >> 20, (unsigned long long)total >> 20,
		(unsigned long long)hunt->taken >> 20);
	end_full(hunt, why);
}

bool disk_symbols_has_room(uint64_t size, uint64_t free_bytes)
{
	uint64_t reserve = size / 10 < DISK_SYMBOLS_FREE_MIN ? size / 10 : DISK_SYMBOLS_FREE_MIN;

	return free_bytes >= reserve + DISK_SYMBOLS_FILE_MAX;
}

/* The guest is not to fill the host's disk. */
static void check_room(struct hunt *hunt)
{
	uint64_t total = hunt->search->total_max ? hunt->search->total_max : DISK_SYMBOLS_TOTAL_MAX;
	struct statvfs status;

	if (hunt->taken + DISK_SYMBOLS_FILE_MAX > total) {
		end_too_large(hunt, total);
		return;
	}
	/* A tmpfs may have no size. */
	if (!statvfs(hunt->directory, &status) && status.f_blocks &&
	    !disk_symbols_has_room((uint64_t)status.f_blocks * status.f_frsize,
				   (uint64_t)status.f_bavail * status.f_frsize))
		end_full(hunt, "its file system is nearly full");
}

static bool take_from(struct hunt *hunt, struct guest_disk *disk, const struct image *image)
{
	struct bytes file;
	int result =
		guest_disk_read(disk, image->path, image->build_id, image->build_id_size, &file);

	if (result)
		return false;
	hunt->taken += file.size;
	result = build_id_cache_replace_image(hunt->directory, image->build_id,
					      image->build_id_size, &file);
	if (result < 0)
		end_full(hunt, error_message());
	free(file.data);
	return result > 0;
}

static bool take(struct hunt *hunt, const struct image *image)
{
	log_progress("reading %s of the guest's disk", image->path);
	for (size_t i = 0; i < hunt->disk_count && !hunt->result->full; i++)
		if (take_from(hunt, hunt->disks[i], image))
			return true;
	return false;
}

/* What was not found could be on a disk that can not be read just now, or could not be kept. */
static bool has_seen_all(const struct hunt *hunt)
{
	return !hunt->result->full && hunt->disk_count == hunt->search->disk_count;
}

static int take_all(struct hunt *hunt)
{
	for (size_t i = 0; i < hunt->images.count && hunt->disk_count; i++) {
		const struct image *image = &hunt->images.images[i];

		check_room(hunt);
		if (hunt->result->full)
			return 0;
		if (take(hunt, image))
			hunt->result->found++;
		else if (is_over(hunt))
			return -ECANCELED;
		else if (hunt->search->once && has_seen_all(hunt))
			disk_misses_add(&hunt->misses, image->build_id, image->build_id_size);
	}
	return 0;
}

/* Else each search would add as much as it may to what those before took. */
static uint64_t bytes_below(const char *directory)
{
	char *const roots[] = { (char *)directory, NULL };
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	const FTSENT *entry;
	uint64_t bytes = 0;

	while (tree && (entry = fts_read(tree)))
		if (entry->fts_info == FTS_F)
			bytes += (uint64_t)entry->fts_statp->st_size;
	if (tree)
		fts_close(tree);
	return bytes;
}

static int look(struct hunt *hunt)
{
	const struct guest_disk_limits limits = { .file_max = DISK_SYMBOLS_FILE_MAX,
						  .is_over = is_over,
						  .context = hunt,
						  .broker = hunt->search->broker };
	int error = open_disks(hunt, &limits);

	if (!error && hunt->disk_count)
		error = cache_make_directory(hunt->directory);
	if (!error && hunt->search->total_max)
		hunt->taken = bytes_below(hunt->directory);
	if (!error)
		error = take_all(hunt);
	log_progress("%s", "");
	while (hunt->disk_count)
		guest_disk_close(hunt->disks[--hunt->disk_count]);
	return error;
}

static int search_disks(struct hunt *hunt)
{
	const struct disk_symbols_search *search = hunt->search;
	int error = read_images(hunt);

	if (!error && search->once)
		disk_misses_read(&hunt->misses, hunt->directory, search->disks, search->disk_count);
	if (!error)
		error = keep_wanted(hunt);
	if (error)
		return error;
	hunt->result->wanted = (unsigned int)hunt->images.count;
	return hunt->images.count ? look(hunt) : 0;
}

int disk_symbols_fetch(const struct disk_symbols_search *search, struct disk_symbols_result *result)
{
	struct hunt hunt = { .search = search,
			     .result = result,
			     .directory = search->directory,
			     .deadline = clock_ms(CLOCK_MONOTONIC) + search->seconds * MS_PER_S };
	char standard[PATH_MAX];
	int error = 0;

	*result = (struct disk_symbols_result){ 0 };
	if (!hunt.directory) {
		error = build_id_cache_directory(standard, sizeof(standard));
		hunt.directory = standard;
	}
	if (!error)
		error = search_disks(&hunt);
	hunt.misses.changed &= !error || error == -ECANCELED;
	if (disk_misses_write(&hunt.misses, hunt.directory))
		log_debug("%s", error_message());
	free_images(&hunt.images);
	result->cut_short = error == -ECANCELED;
	return result->cut_short ? 0 : error;
}
