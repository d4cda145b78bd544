/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a function of ours that parses a guest's data in a confined child process, which executes no
 * program: it can read and write some files, with limited time and memory. It has no network, no
 * other processes and no privileges. A guest that takes over the function gains no more than that,
 * and what the caller has in memory. Uses the means of sandbox.h. Any thread.
 */
#ifndef KVMSCOPE_DISK_SANDBOX_WORK_H
#define KVMSCOPE_DISK_SANDBOX_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sandbox_work {
	const char *input; /* what is parsed, for messages */
	/* Files and directories that it may read, besides the system's, and write; NULL: none. Each
	 * list ends with NULL. */
	const char *const *readable, *const *writable;
	/* It runs as this user, if we may change the user. */
	uid_t uid;
	gid_t gid;
	/* The user's rights are not the limit for reading, or writing, these: it keeps
	 * CAP_DAC_READ_SEARCH, or CAP_DAC_OVERRIDE, if we have it. */
	bool reads_any, writes_any;
	bool network;         /* it may connect to servers, with threads */
	unsigned int seconds; /* of CPU time; 0: no limit. It may wait for 30 times as long. */
	uint64_t file_max;    /* bytes of a file that it writes; 0: no limit */
	uint64_t memory_max;  /* bytes, besides what the caller has; 0: no limit */
	/* Descriptors that stay open, besides the standard ones; NULL: all. COUNT of them. */
	const int *files;
	size_t file_count;
	bool detached; /* the standard descriptors are those of /dev/null */
	/* Blocked signals stay so, for a function that reads them, or should not end by them. */
	bool keeps_signals;
	/* True ends it: by SIGTERM, then by SIGKILL. Called at least every 100 ms on the calling
	 * thread. NULL: never. */
	bool (*is_over)(void *context);
	void *context;
};

/*
 * Calls FUNCTION with CONTEXT in the child, whose changes to memory are lost. It flushes the
 * streams that it writes, except standard output. Returns its result, a negative errno with its
 * message, or 0. Errors, with messages: -EIO: it crashed; -ETIME, -ECANCELED; an error of confining
 * it ("cannot confine ..."); the errors of fork(). In builds with sanitizers calls FUNCTION
 * directly.
 */
int sandbox_work_run(const struct sandbox_work *work, int (*function)(void *context),
		     void *context);

/*
 * Starts the same without waiting: the caller waits for *PROCESS, which ends at the latest with the
 * calling thread. Errors of confining it end it. The errors of fork(), with messages. Not in builds
 * with sanitizers.
 */
int sandbox_work_start(const struct sandbox_work *work, int (*function)(void *context),
		       void *context, pid_t *process);

/* False in builds with sanitizers. */
bool sandbox_work_is_possible(void);

/* Confines the calling process; for sandbox_work_run() and its tests. After an error (negative
 * errno with its message) the process must exit. */
int sandbox_work_enter(const struct sandbox_work *work);

#endif
