/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: the maps with the vCPUs and their rings, and with the bells of their readers. */
#ifndef KVMSCOPE_ATTACH_BPF_RING_MAPS_H
#define KVMSCOPE_ATTACH_BPF_RING_MAPS_H

#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/guest_sample.h"

/* vCPUs, each followed by its ring. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VCPU_MAPS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			/* Inner maps may have more elements. */
			__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, BPF_CHUNK);
		});
} vcpus SEC(".maps");

/* The bell of each VM. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VMS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_RINGBUF);
			__uint(max_entries, 4096); /* or the page size */
		});
} bells SEC(".maps");

#endif
