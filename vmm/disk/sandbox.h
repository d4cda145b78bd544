/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of the system that reads what a guest wrote, in a process that can do no more than read
 * some files and write to one pipe: no network, no other process, nothing written, bounded in time
 * and memory, without rights. If the guest takes the program over, that is all it has. By seccomp,
 * and by Landlock (which files) where the kernel has it. Any one thread.
 */
#ifndef KVMSCOPE_DISK_SANDBOX_H
#define KVMSCOPE_DISK_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "shared/bytes.h"

struct sandbox {
	const char
		*readable; /* a file that it may read besides the system's programs and libraries */
	uid_t uid;         /* who it becomes where we are root: who may read that */
	gid_t gid;
	unsigned int seconds; /* that it may take */
	size_t output_max;    /* bytes that it may write to its standard output */
	/* Asked before, and at least every 100 ms: is it to end? In the calling thread. NULL:
	 * nobody asks. */
	bool (*is_over)(void *context);
	void *context;
};

/*
 * Runs ARGUMENTS, the first a path, the last NULL, and gathers what it writes to standard output
 * into OUTPUT, which is the caller's to free in any case. Errors, with their messages: -EIO: it
 * failed; -ETIMEDOUT, -EFBIG; -ECANCELED: is_over() said so; -ECHILD: nobody knows how it ended, as
 * SIGCHLD is ignored; what kept it from being confined, or from running ("cannot confine ...");
 * -ENOMEM and the errors of fork().
 */
int sandbox_run(const struct sandbox *sandbox, const char *const *arguments, struct bytes *output);

/* Which files it can read is the sandbox's to say; else the user's rights do. */
bool sandbox_has_landlock(void);

/* The calling process becomes the one that is meant; for sandbox_run(), and for tests of it. A
 * negative errno, with its message: it must end. */
int sandbox_enter(const struct sandbox *sandbox);

#endif
