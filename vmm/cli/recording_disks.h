/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the guest's programs that only its disks have, once a recording has ended. */
#ifndef KVMSCOPE_CLI_RECORDING_DISKS_H
#define KVMSCOPE_CLI_RECORDING_DISKS_H

#include <stddef.h>

struct sandbox_broker;

struct recording_disks {
	const char *output;       /* the recording's first file; one that is no regular file has no names */
	unsigned int files;       /* that it has: output, output.1, ... */
	const char *const *disks; /* paths */
	size_t count;             /* of them */
	struct sandbox_broker
		*broker; /* that was started for them by whoever may not read them any more; NULL */
	int signal_fd;   /* readable: it is enough, at once */
};

/*
 * Looks on the disks for what the recording wants of them, for some seconds, into perf's build-id cache, and
 * says what it found, or how to find it. Once nobody writes to the recording.
 */
void recording_disks_search(const struct recording_disks *recording);

#endif
