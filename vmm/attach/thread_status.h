/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of a thread without stopping it: proc(5). Any thread. */
#ifndef KVMSCOPE_ATTACH_THREAD_STATUS_H
#define KVMSCOPE_ATTACH_THREAD_STATUS_H

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/attach/process.h"

struct thread_status {
	char state; /* 'R': it runs, or would if a processor was free; 'S': it sleeps; ... */
	unsigned int seccomp; /* SECCOMP_MODE_* */
	unsigned int filters; /* of seccomp */
	bool shadow_stack;    /* its returns are checked (from Linux 6.6) */
};

/* ns since it began. */
struct thread_times {
	uint64_t ran;    /* on a processor */
	uint64_t waited; /* for one */
};

/* Opens /proc/PID/task/TID/NAME of PROCESS; -1: it has ended, or there is none. */
int thread_file_open(const struct vmm_process *process, pid_t tid, const char *name);

/* Of such a file "status", "schedstat"; false: the thread has ended, or it can not be read, or not
 * all of it (64 KiB). */
bool thread_status_read(int fd, struct thread_status *status);
bool thread_times_read(int fd, struct thread_times *times);

/* Parsers of their texts. */
bool thread_status_parse(const char *text, struct thread_status *status);
bool thread_times_parse(const char *text, struct thread_times *times);

#endif
