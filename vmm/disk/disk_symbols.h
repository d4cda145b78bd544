/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies programs and libraries from the guest's disks (guest_disk.h) to the build-id cache, where
 * perf finds them too; they replace symbols that came from guest memory, but never files of others.
 * disk_symbols_fetch() does so at the end of a recording for all its images whose functions the
 * cache does not have, so that reports still have the symbols after the disk was removed. One
 * thread at a time.
 */
#ifndef KVMSCOPE_DISK_DISK_SYMBOLS_H
#define KVMSCOPE_DISK_DISK_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/error.h"
#include "shared/span.h"

struct guest_disk;

/* Limits of the host's disk space, because the guest controls its files. Bytes of one file: */
#define DISK_SYMBOLS_FILE_MAX (128ull << 20)
/* Bytes of all files, unless the search sets another limit: */
#define DISK_SYMBOLS_TOTAL_MAX (512ull << 20)
/* Free bytes to leave in the cache's file system, or a tenth of it if that is less: */
#define DISK_SYMBOLS_FREE_MIN (1ull << 30)

struct disk_symbols_search {
	const char *recording;    /* a closed perf.data file */
	unsigned int files;       /* number of its files: recording, recording.1, ... */
	const char *directory;    /* of the build-id cache; NULL: perf's */
	const char *const *disks; /* raw images or block devices; others are skipped */
	size_t disk_count;
	struct sandbox_broker *broker; /* see guest_disk.h; NULL: none */
	/* Limit in bytes of all files in the directory afterwards, existing ones included; 0: the
	 * copied files have DISK_SYMBOLS_TOTAL_MAX. */
	uint64_t total_max;
	/* Skip builds that these disks did not have within the last day (disk_misses.h), for
	 * repeated searches. */
	bool once;
	unsigned int seconds; /* time limit for all of it, by CLOCK_MONOTONIC */
	/* True ends the search; called several times a second on the calling thread. NULL: never.
	 */
	bool (*is_enough)(void *context);
	void *context;
};

struct disk_symbols_result {
	/* Images that lack functions; 0 if time ran out before all were counted. */
	unsigned int wanted;
	unsigned int found;           /* of these, on the disks */
	unsigned int disks;           /* that could be read, if there was anything to search */
	bool cut_short;               /* time ran out */
	bool full;                    /* no more could be stored, which was reported */
	const char *refused;          /* the first disk without permission to read it; NULL: none */
	char why[ERROR_MESSAGE_SIZE]; /* why that disk, else the first unreadable one, failed */
};

/*
 * 0, or the errors of perf_data_reader_open() and build_id_cache_directory(), with their messages;
 * -ENOENT: grub-fstest is missing. Unreadable disks and missing files are not errors; a full cache
 * is reported once.
 */
int disk_symbols_fetch(const struct disk_symbols_search *search,
		       struct disk_symbols_result *result);

/*
 * Copies one file, at the absolute path RECORDED in the guest, from the first of the COUNT DISKS
 * that has that build, to the cache BUILDID_DIR (NULL: perf's), and the path of the copy to PATH of
 * SYMBOL_PATH_MAX bytes. False: no disk has it.
 */
bool disk_symbols_fetch_file(char *path, struct guest_disk *const *disks, size_t count,
			     const char *buildid_dir, const char *recorded, struct span build_id);

/* True if a file may be stored in a file system of SIZE bytes with FREE_BYTES available. Any
 * thread. */
bool disk_symbols_has_room(uint64_t size, uint64_t free_bytes);

#endif
