/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recording wants of the guest's disks at its end: each program and library in it of which the
 * build-id cache has not all functions is looked for there, as guest_disk.h does, and put into the cache.
 * Reports have its names from then on, also when the disk is gone. One thread at a time.
 */
#ifndef KVMSCOPE_PROFILE_DISK_NAMES_H
#define KVMSCOPE_PROFILE_DISK_NAMES_H

#include <stdbool.h>
#include <stddef.h>

struct disk_names_search {
	const char *recording;    /* a perf.data file that was closed */
	const char *directory;    /* of the build-id cache; NULL: perf's */
	const char *const *disks; /* raw images or block devices; others are passed over */
	size_t disk_count;
	unsigned int seconds; /* all of it takes no longer, but for what begins before */
	/* Asked before each file: is it to end? NULL: nobody asks. */
	bool (*is_enough)(void *context);
	void *context;
};

struct disk_names_result {
	unsigned int wanted; /* images that have not all of their names */
	unsigned int found;  /* of these, on the disks */
	unsigned int disks;  /* that could be looked into, if there was anything to look for */
	bool cut_short;      /* there was no time for all */
};

/*
 * 0, or the errors of perf_data_reader_open() and of build_id_cache_directory(), with their messages;
 * -ENOENT: grub-fstest is missing. That a disk can not be read, or has none of the files, is no error.
 */
int disk_names_fetch(const struct disk_names_search *search, struct disk_names_result *result);

#endif
