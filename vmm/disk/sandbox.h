/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program that parses a guest's data in a confined process: it can read some files and write
 * to one pipe, with limited time and memory. It has no network, no other processes and no
 * privileges, and writes no files. A guest that takes over the program gains no more than that.
 * Uses seccomp, and Landlock (for files) if the kernel has it. One thread at a time.
 */
#ifndef KVMSCOPE_DISK_SANDBOX_H
#define KVMSCOPE_DISK_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "shared/bytes.h"

#define SANDBOX_ARGUMENTS_MAX 16

struct sandbox {
	const char *readable; /* a file it may read, besides programs and libraries of the system */
	uid_t uid;            /* if we are root, it runs as the owner of that file */
	gid_t gid;
	unsigned int seconds; /* time limit */
	size_t output_max;    /* bytes of standard output */
	/* True ends the program. Called on the calling thread before it starts, and at least every
	 * 100 ms. NULL: never. */
	bool (*is_over)(void *context);
	void *context;
};

/*
 * Runs ARGUMENTS (an absolute path first, NULL last, at most SANDBOX_ARGUMENTS_MAX before it) and
 * collects its standard output in OUTPUT, which the caller frees in any case. Errors, with
 * messages: -EIO: it failed; -ETIMEDOUT, -EFBIG; -ECANCELED: is_over() returned true; -ECHILD: its
 * exit status was lost, because SIGCHLD is ignored; an error of confining or executing it ("cannot
 * confine ..."); -ENOMEM and the errors of fork().
 */
int sandbox_run(const struct sandbox *sandbox, const char *const *arguments, struct bytes *output);

/* True if the kernel has Landlock; without it, file access is limited by the user's rights only. */
bool sandbox_has_landlock(void);

/* Confines the calling process; for sandbox_run() and its tests. After an error (negative errno
 * with its message) the process must exit. */
int sandbox_enter(const struct sandbox *sandbox);

#endif
