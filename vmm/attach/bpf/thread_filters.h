/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the BPF program of thread_filters.c and its loader say to each other. */
#ifndef KVMSCOPE_ATTACH_BPF_THREAD_FILTERS_H
#define KVMSCOPE_ATTACH_BPF_THREAD_FILTERS_H

#include <linux/filter.h>
#include <linux/types.h>

/* Filters of a thread that are counted. */
#define THREAD_FILTERS_MAX 128
/* Instructions of one (kernel: BPF_MAXINSNS). */
#define THREAD_FILTER_MAX 4096

struct thread_filter {
	__u32 of;    /* filters that the thread has */
	__u32 count; /* of instructions; 0: it can not be read */
	struct sock_filter instructions[THREAD_FILTER_MAX];
};

#endif
