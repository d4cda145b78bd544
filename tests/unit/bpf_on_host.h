/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions and maps of BPF, to build the BPF program's source (vmm/attach/bpf) for the host:
 * include this before it. A map is an array of elements of BPF_CHUNK bytes. User space is one
 * address range of this process, and kernel-mapped memory another. Main thread only.
 */
#ifndef KVMSCOPE_TESTS_UNIT_BPF_ON_HOST_H
#define KVMSCOPE_TESTS_UNIT_BPF_ON_HOST_H

#include <errno.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/cdefs.h>

#include "vmm/attach/bpf/guest_sample.h"

#define __noinline __attribute__((noinline, unused))

static struct {
	uint8_t *elements;
	uint32_t count;
} host_map;

static struct {
	int rung;
} bells;

static struct {
	const uint8_t *start;
	size_t size;
	unsigned int reads;
} host_user;

/* Except the page at HOLE, which cannot be read. */
static struct {
	const uint8_t *start, *hole;
	size_t size;
} host_kernel;

static const __u32 can_cast = 1;

static inline __u64 kernel_word(__u64 at)
{
	uintptr_t offset = at - (uintptr_t)host_kernel.start;
	__u64 word;

	if (!host_kernel.start || offset > host_kernel.size - sizeof(word) ||
	    (at & ~0xfffull) == (uintptr_t)host_kernel.hole)
		return 0;
	memcpy(&word, host_kernel.start + offset, sizeof(word));
	return word;
}

static inline void *bpf_map_lookup_elem(void *map, const __u32 *key)
{
	if (map == &bells)
		return &bells;
	return *key < host_map.count ? host_map.elements + (size_t)*key * BPF_CHUNK : NULL;
}

static inline void bpf_ringbuf_output(void *bell, const void *data, size_t size, __u64 flags)
{
	(void)data;
	(void)size;
	if (bell == &bells && flags == BPF_RB_FORCE_WAKEUP)
		bells.rung++;
}

static inline long bpf_probe_read_user(void *to, __u32 size, const void *from)
{
	uintptr_t offset = (uintptr_t)from - (uintptr_t)host_user.start;

	host_user.reads++;
	if (offset > host_user.size || size > host_user.size - offset) {
		memset(to, 0, size);
		return -EFAULT;
	}
	memcpy(to, host_user.start + offset, size);
	return 0;
}

static inline long bpf_loop(__u32 count, long (*step)(__u32 index, void *context), void *context,
			    __u64 flags)
{
	__u32 index = 0;

	(void)flags;
	while (index < count && !step(index, context))
		index++;
	return index;
}

#endif
