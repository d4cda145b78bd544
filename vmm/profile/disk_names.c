// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/disk_names.h"

#include <errno.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/profile/build_id_cache.h"
#include "vmm/profile/elf_file.h"
#include "vmm/profile/guest_disk.h"
#include "vmm/profile/perf_data_reader.h"

/* A guest can map as many files as it likes. */
#define IMAGES_MAX 4096
#define DISKS_MAX  16

struct image {
	char *path; /* owned */
	uint8_t build_id[ELF_BUILD_ID_MAX];
	size_t build_id_size;
};

struct images {
	struct image *images;
	size_t count;
};

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
	struct images *images = context;
	struct image *image;

	if ((mapping->misc & PERF_RECORD_MISC_CPUMODE_MASK) != PERF_RECORD_MISC_USER ||
	    !may_be_on_disk(mapping->name) || !mapping->build_id_size ||
	    mapping->build_id_size > ELF_BUILD_ID_MAX || images->count == IMAGES_MAX ||
	    is_known(images, mapping))
		return 0;
	image = &images->images[images->count];
	*image = (struct image){ .path = strdup(mapping->name), .build_id_size = mapping->build_id_size };
	memcpy(image->build_id, mapping->build_id, mapping->build_id_size);
	if (!image->path)
		return error_set(-ENOMEM, "no memory for the files of a recording");
	images->count++;
	return 0;
}

static int read_images(struct images *images, const char *recording)
{
	const struct perf_data_events events = { .mapping = see_mapping, .context = images };
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, recording);

	if (error)
		return error;
	images->images = calloc(IMAGES_MAX, sizeof(*images->images));
	error = images->images ? perf_data_reader_run(reader, &events)
			       : error_set(-ENOMEM, "no memory for the files of a recording");
	perf_data_reader_close(reader);
	return error;
}

static void free_images(struct images *images)
{
	for (size_t i = 0; i < images->count; i++)
		free(images->images[i].path);
	free(images->images);
}

static void keep_wanted(struct images *images, const char *directory)
{
	size_t kept = 0;

	for (size_t i = 0; i < images->count; i++)
		if (build_id_cache_has_whole_image(directory, images->images[i].build_id,
						   images->images[i].build_id_size))
			free(images->images[i].path);
		else
			images->images[kept++] = images->images[i];
	images->count = kept;
}

/* -ENOENT: there is no program that could read any. */
static int open_disks(struct guest_disk **disks, size_t *count, const struct disk_names_search *search)
{
	*count = 0;
	if (!guest_disk_readable())
		return error_set(-ENOENT, "grub-fstest is missing (Debian package grub-common)");
	for (size_t i = 0; i < search->disk_count && *count < DISKS_MAX; i++)
		if (guest_disk_open(&disks[*count], search->disks[i])) {
			log_debug("%s", error_message());
		} else {
			guest_disk_hurry(disks[*count], search->seconds);
			++*count;
		}
	return 0;
}

static bool take_from(struct guest_disk *disk, const struct image *image, const char *directory)
{
	struct bytes file;
	int result = guest_disk_read(disk, image->path, image->build_id, image->build_id_size, &file);

	if (!result)
		result =
			build_id_cache_replace_image(directory, image->build_id, image->build_id_size, &file);
	if (result < 0 && result != -ENOENT && result != -EINVAL)
		log_warning("%s of the guest's disk can not be kept: %s", image->path, error_message());
	free(file.data);
	return result > 0;
}

static bool take(struct guest_disk *const *disks, size_t count, const struct image *image,
		 const char *directory)
{
	for (size_t i = 0; i < count; i++)
		if (take_from(disks[i], image, directory))
			return true;
	return false;
}

static time_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

static int fetch(const struct disk_names_search *search, const struct images *images, const char *directory,
		 struct disk_names_result *result)
{
	time_t end = now() + (time_t)search->seconds;
	struct guest_disk *disks[DISKS_MAX];
	size_t count;
	int error = open_disks(disks, &count, search);

	result->disks = (unsigned int)count;
	for (size_t i = 0; i < images->count && count; i++) {
		result->cut_short = now() >= end || (search->is_enough && search->is_enough(search->context));
		if (result->cut_short)
			break;
		log_progress("reading %s of the guest's disk", images->images[i].path);
		result->found += take(disks, count, &images->images[i], directory);
	}
	log_progress("%s", "");
	while (count)
		guest_disk_close(disks[--count]);
	return error;
}

int disk_names_fetch(const struct disk_names_search *search, struct disk_names_result *result)
{
	const char *directory = search->directory;
	struct images images = { 0 };
	char standard[PATH_MAX];
	int error = 0;

	*result = (struct disk_names_result){ 0 };
	if (!directory) {
		error = build_id_cache_directory(standard, sizeof(standard));
		directory = standard;
	}
	if (!error)
		error = read_images(&images, search->recording);
	if (!error) {
		keep_wanted(&images, directory);
		result->wanted = (unsigned int)images.count;
	}
	if (!error && images.count)
		error = fetch(search, &images, directory, result);
	free_images(&images);
	return error;
}
