/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: the threads whose time outside of the guest is measured. */
#ifndef KVMSCOPE_ATTACH_BPF_OUTSIDE_THREADS_H
#define KVMSCOPE_ATTACH_BPF_OUTSIDE_THREADS_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/guest_sample.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct bpf_outside);
} outside SEC(".maps");

static __always_inline struct bpf_outside *find_outside(__u32 tid)
{
	return bpf_map_lookup_elem(&outside, &tid);
}

#endif
