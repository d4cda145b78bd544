/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recording wants of the guest's disks at its end: each program and library in it of which
 * the build-id cache has not all functions is looked for there, as guest_disk.h does, and put into
 * the cache. Reports have its names from then on, also when the disk is gone. One thread at a time.
 */
#ifndef KVMSCOPE_DISK_DISK_SYMBOLS_H
#define KVMSCOPE_DISK_DISK_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/error.h"

/* The guest says what its files are, and this is the host's disk: a larger one is not taken, */
#define DISK_SYMBOLS_FILE_MAX (128ull << 20)
/* nor more in all, unless less is wanted, */
#define DISK_SYMBOLS_TOTAL_MAX (512ull << 20)
/* nor where less than this, or than a tenth if that is less, were left of the cache's file system.
 */
#define DISK_SYMBOLS_FREE_MIN (1ull << 30)

struct disk_symbols_search {
	const char *recording;    /* a perf.data file that was closed */
	unsigned int files;       /* that it has: recording, recording.1, ... */
	const char *directory;    /* of the build-id cache; NULL: perf's */
	const char *const *disks; /* raw images or block devices; others are passed over */
	size_t disk_count;
	struct sandbox_broker *broker; /* as of guest_disk.h; NULL */
	/* Bytes that all in the directory may have behind it, what lies there by now too; 0:
	 * DISK_SYMBOLS_TOTAL_MAX of what is taken. */
	uint64_t total_max;
	/* What these disks had not within the last day is not looked for again (disk_misses.h): for
	 * who asks again and again. */
	bool once;
	unsigned int seconds; /* all of it takes no longer, by CLOCK_MONOTONIC */
	/* Asked some times a second, in the calling thread: is it to end? NULL: nobody asks. */
	bool (*is_enough)(void *context);
	void *context;
};

struct disk_symbols_result {
	/* Images that have not all of their names; 0 if time was over before all were seen. */
	unsigned int wanted;
	unsigned int found;  /* of these, on the disks */
	unsigned int disks;  /* that could be looked into, if there was anything to look for */
	bool cut_short;      /* there was no time for all */
	bool full;           /* no more could be kept, which was said */
	const char *refused; /* the first of the search's disks that may not be read; NULL */
	char why[ERROR_MESSAGE_SIZE]; /* that one could not be looked into, else the first that
					 could not */
};

/*
 * 0, or the errors of perf_data_reader_open() and of build_id_cache_directory(), with their
 * messages; -ENOENT: grub-fstest is missing. That a disk can not be read, or has none of the files,
 * is no error; that no more files can be kept is said once.
 */
int disk_symbols_fetch(const struct disk_symbols_search *search,
		       struct disk_symbols_result *result);

/* May a file be taken where the cache's file system has SIZE bytes, FREE_BYTES of them for its
 * user? Any thread. */
bool disk_symbols_has_room(uint64_t size, uint64_t free_bytes);

#endif
