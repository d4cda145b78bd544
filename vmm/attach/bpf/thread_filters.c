/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: copies one of a thread's seccomp filters, as the thread installed it, with an iterator over
 * that thread. A running thread keeps its filters (kernel: kernel/seccomp.c); those of an exiting
 * one may be garbage.
 */
#include <linux/bpf.h>
#include <linux/filter.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/thread_filters.h"

char LICENSE[] SEC("license") = "GPL";

#define KERNEL_TYPE __attribute__((preserve_access_index))

struct sock_fprog_kern {
	__u16 len;
	struct sock_filter *filter;
} KERNEL_TYPE;

struct bpf_prog {
	struct sock_fprog_kern *orig_prog;
} KERNEL_TYPE;

struct seccomp_filter {
	struct seccomp_filter *prev;
	struct bpf_prog *prog;
} KERNEL_TYPE;

struct seccomp {
	struct seccomp_filter *filter;
} KERNEL_TYPE;

struct task_struct {
	struct seccomp seccomp;
} KERNEL_TYPE;

struct bpf_iter__task {
	struct task_struct *task;
} KERNEL_TYPE;

/* Index of the filter to copy, from the newest on. Set by the loader. */
__u32 filter_index;

struct thread_filter shown;

static __always_inline void show(struct seccomp_filter *filter)
{
	struct sock_fprog_kern *given = BPF_CORE_READ(filter, prog, orig_prog);
	__u32 count = BPF_CORE_READ(given, len);

	if (!given || !count || count > THREAD_FILTER_MAX)
		return;
	if (!bpf_probe_read_kernel(shown.instructions, count * sizeof(shown.instructions[0]),
				   BPF_CORE_READ(given, filter)))
		shown.count = count;
}

SEC("iter/task")
int find_filter(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct seccomp_filter *filter, *found = 0;

	if (!task)
		return 0;
	filter = BPF_CORE_READ(task, seccomp.filter);
	shown.count = 0;
	shown.of = 0;
	for (__u32 i = 0; i < THREAD_FILTERS_MAX && filter; i++) {
		if (i == filter_index)
			found = filter;
		shown.of++;
		filter = BPF_CORE_READ(filter, prev);
	}
	if (found)
		show(found);
	return 0;
}
