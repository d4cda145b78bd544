/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the guest's programs that only its disks have, once a recording has ended. */
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
	const char
		*output; /* the recording's first file; one that is no regular file has no names */
	unsigned int files;       /* that it has: output, output.1, ... */
	const char *directory;    /* of the build-id cache that the names go into; NULL: perf's */
	uint64_t total_max;       /* as in disk_symbols.h; 0 */
	bool once;                /* as in disk_symbols.h */
	const char *whose;        /* begins each line of what is said; NULL */
	const char *const *disks; /* paths */
	size_t count;             /* of them */
	struct sandbox_broker
		*broker; /* that was started for them by whoever may not read them any more; NULL */
	int signal_fd;   /* readable: it is enough, at once; -1 */
};

/*
 * Looks on the disks for what the recording wants of them, for some seconds, and says what it
 * found, or how to find it. Of a recording that is being written it is what is there by now.
 */
void recording_disks_search(const struct recording_disks *recording);

/* The same files as a broker wants them, DISKS' count; the paths are DISKS'. */
void recording_disks_places(const struct open_disks *disks, struct disk_file *places);

/*
 * The same of RECORDING, which kvmscoped has made: on the disks that the domain's process PID has
 * open, into the names that lie beside it. Nothing is looked for where none do. WHOSE, where it is
 * asked for again and again: begins what is said, and what these disks had not is not looked for
 * again (disk_symbols.h); NULL.
 */
void recording_disks_search_domain(const char *recording, pid_t pid, const char *whose);

#endif
