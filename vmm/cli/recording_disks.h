/* SPDX-License-Identifier: Apache-2.0 */
/* Searches the guest's disks for symbols of its programs after a recording. Main thread. */
#ifndef KVMSCOPE_CLI_RECORDING_DISKS_H
#define KVMSCOPE_CLI_RECORDING_DISKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct disk_file;
struct open_disks;
struct sandbox_broker;

struct recording_disks {
	const char *output; /* the recording's first file; a pipe or device is not searched for */
	unsigned int files; /* number of its files: output, output.1, ... */
	const char *directory;    /* build-id cache for the symbols; NULL: perf's */
	uint64_t total_max;       /* as in disk_symbols.h; 0 */
	bool once;                /* as in disk_symbols.h */
	const char *whose;        /* begins each log message; NULL */
	const char *const *disks; /* paths */
	size_t count;             /* of the disks */
	/* Opens the disks, if we no longer have the right to; NULL. */
	struct sandbox_broker *broker;
	int signal_fd; /* readable: the search ends at once; -1 */
};

/* Searches the disks for symbols that the recording lacks, for some seconds, and logs the result. A
 * recording that is being written is read as far as it goes. */
void recording_disks_search(const struct recording_disks *recording);

/* Describes DISKS for a broker, in PLACES with room for their count; the paths are DISKS'. */
void recording_disks_describe(const struct open_disks *disks, struct disk_file *places);

/*
 * The same for RECORDING of kvmscoped: searches the disks that the domain's process PID has open,
 * and stores symbols next to the recording. Without a directory for them nothing is searched.
 * WHOSE, for repeated searches, begins each log message, and what is not found is not searched
 * again for a day (disk_symbols.h); NULL: one search.
 */
void recording_disks_search_domain(const char *recording, pid_t pid, const char *whose);

#endif
