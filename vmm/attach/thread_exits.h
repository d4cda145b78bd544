/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports the exit of sampled threads immediately, so that the threads that replace them can be
 * sampled: some VMMs run a vCPU on one thread after the other. Poll of a perf event returns
 * EPOLLHUP after its thread has exited, and in any case if the event has no mapping
 * (kernel/events/core.c, perf_poll()). The attach thread, or the opener before that runs.
 */
#ifndef KVMSCOPE_ATTACH_THREAD_EXITS_H
#define KVMSCOPE_ATTACH_THREAD_EXITS_H

#include <stddef.h>
#include <sys/types.h>

#include "vmm/attach/process.h"

struct thread_exits {
	int fd; /* readable if a thread has exited */
	struct thread_exit {
		int event;        /* -1: none */
		void *page;       /* its mapping */
	} threads[VMM_VCPUS_MAX]; /* by vCPU id */
};

/* 0, or a negative errno of epoll_create1(2) with the message. */
int thread_exits_open(struct thread_exits *exits);
void thread_exits_close(struct thread_exits *exits);

/* Watches thread TID of vCPU ID instead of an earlier one. Where perf does not allow an event,
 * exits are found by the next scan. */
void thread_exits_watch(struct thread_exits *exits, unsigned int id, pid_t tid);
void thread_exits_unwatch(struct thread_exits *exits, unsigned int id);

/* The number of watched threads that have exited since the last call. */
unsigned int thread_exits_read(struct thread_exits *exits);

#endif
