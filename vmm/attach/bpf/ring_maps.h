/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: where the program finds its vCPUs with their rings, and what wakes those who read them. */
#ifndef KVMSCOPE_ATTACH_BPF_RING_MAPS_H
#define KVMSCOPE_ATTACH_BPF_RING_MAPS_H

#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/guest_sample.h"

/* Of vCPUs: what is known of each, and its ring. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VCPU_MAPS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			/* There may be more of them than here. */
			__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, BPF_CHUNK);
		});
} vcpus SEC(".maps");

/* Of each VM: what wakes the reader of its samples. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VMS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_RINGBUF);
			__uint(max_entries, 4096); /* or what a page is */
		});
} bells SEC(".maps");

#endif
