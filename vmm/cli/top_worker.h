/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope top samples each VM in a process of its own, which has the rights of kvmscope attach and
 * reports to top by lines of JSON. What a guest wrote is parsed there, or in the sandbox of
 * report's reader. Main thread of a process without other threads.
 */
#ifndef KVMSCOPE_CLI_TOP_WORKER_H
#define KVMSCOPE_CLI_TOP_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct top_worker_options {
	pid_t pid; /* of the VM's process */
	int vm;    /* its descriptor there; 0: the only VM */
	unsigned int frequency;
	bool callchains;
	const char *vmlinux; /* kernel symbols; NULL */
	uint64_t interval;   /* ns of a report */
	bool silent;         /* writes no messages to standard error */
	bool verbose;        /* writes details */
};

/*
 * Starts the process of a VM. FD receives its reports, one object per line: what
 * top_counts_report() and top_functions_send() add, or error, a message, which is its last one. It
 * ends when FD is closed, or with the VM. Returns its pid, or the errors of socketpair(2) and
 * fork(2), with the message.
 */
pid_t top_worker_start(const struct top_worker_options *options, int *fd);

/* Changes the length of the reports after the present one. */
void top_worker_set_interval(int fd, uint64_t interval);

#endif
