/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The interface between the BPF program of thread_filters.c and its loader. */
#ifndef KVMSCOPE_ATTACH_BPF_THREAD_FILTERS_H
#define KVMSCOPE_ATTACH_BPF_THREAD_FILTERS_H

#include <linux/filter.h>
#include <linux/types.h>

/* Maximum number of filters that are counted. */
#define THREAD_FILTERS_MAX 128
/* Maximum length of a filter (kernel: BPF_MAXINSNS). */
#define THREAD_FILTER_MAX 4096

struct thread_filter {
	__u32 of;    /* number of the thread's filters */
	__u32 count; /* number of instructions; 0: unreadable */
	struct sock_filter instructions[THREAD_FILTER_MAX];
};

#endif
