/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: the host's call chain of an interrupted vCPU thread, as perf reads it: the kernel by its
 * own unwinder, the VMM by frame pointers. */
#ifndef KVMSCOPE_ATTACH_BPF_HOST_STACK_H
#define KVMSCOPE_ATTACH_BPF_HOST_STACK_H

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf/ring_maps.h"
#include "vmm/attach/bpf/ring_writer.h"

#define HOST_STACK_BYTES (BPF_HOST_CHAIN_MAX * sizeof(__u64))

/* Stores a part of the chain at the end of WHOLE; returns the number of its entries. */
static __always_inline __u32 read_host_part(struct bpf_perf_event_data *ctx,
					    struct bpf_whole_sample *whole, __u64 flags)
{
	__u64 at = size_of(&whole->head);
	long size;

	__asm__ volatile("" : "+r"(at)); /* for the verifier: AT is compared and used */
	if (at > sizeof(*whole) - HOST_STACK_BYTES)
		return 0;
	size = bpf_get_stack(ctx, (void *)whole + at, HOST_STACK_BYTES, flags);
	return size > 0 ? (__u32)size / sizeof(__u64) : 0;
}

static __always_inline void read_host_stack(struct bpf_perf_event_data *ctx,
					    struct bpf_whole_sample *whole)
{
	whole->head.host_kernel = read_host_part(ctx, whole, 0);
	whole->head.host_user = read_host_part(ctx, whole, BPF_F_USER_STACK);
}

#endif
