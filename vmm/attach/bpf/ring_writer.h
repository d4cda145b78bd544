/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: the writer's side of a vCPU's ring (docs/ring-format.md, "The ring of a BPF program").
 * The includer supplies the functions and maps of BPF. */
#ifndef KVMSCOPE_ATTACH_BPF_RING_WRITER_H
#define KVMSCOPE_ATTACH_BPF_RING_WRITER_H

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf/verified_once.h"

/* Returns where the next sample of VCPU, the element FIRST of MAP, goes, and its distance AHEAD
 * of the head. 0: no room. */
static __always_inline struct bpf_whole_sample *reserve(void *map, __u32 first,
							const struct bpf_vcpu *vcpu, __u64 *ahead)
{
	__u64 head = vcpu->head, offset = head & (BPF_CHUNK - 1);
	void *chunk;
	__u32 key;

	*ahead = 0;
	if (offset > BPF_CHUNK - sizeof(struct bpf_whole_sample)) {
		*ahead = BPF_CHUNK - offset;
		offset = 0;
	}
	head += *ahead;
	if (head + sizeof(struct bpf_whole_sample) - *(const volatile __u64 *)&vcpu->tail >
	    (__u64)vcpu->chunks * BPF_CHUNK)
		return 0;
	key = first + 1 + ((__u32)(head / BPF_CHUNK) & (vcpu->chunks - 1));
	chunk = bpf_map_lookup_elem(map, &key);
	return chunk ? chunk + offset : 0;
}

/* Wakes the reader. */
VERIFIED_ONCE int ring_bell(struct bpf_vcpu *vcpu)
{
	__u32 vm, rung = 0;
	void *bell;

	if (!vcpu)
		return 0;
	vcpu->reader_waits = 0;
	vm = vcpu->vm;
	bell = bpf_map_lookup_elem(&bells, &vm);
	if (bell)
		bpf_ringbuf_output(bell, &rung, sizeof(rung), BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* The addition is one instruction (lock add) that orders the later read after it: either this
 * sees that the reader waits, or the reader, which polls once more, sees the sample. WAKES: it is
 * woken from the pauses between its drains, too. */
static __always_inline void commit(struct bpf_vcpu *vcpu, __u64 size, __u64 wakes)
{
	__sync_fetch_and_add(&vcpu->head, size);
	if (wakes || *(const volatile __u32 *)&vcpu->reader_waits)
		ring_bell(vcpu);
}

static __always_inline __u32 size_of(const struct bpf_sample *sample)
{
	__u32 addresses = sample->copied ? BPF_CODE_PAGES : sample->addresses;

	return sizeof(*sample) + sample->copied + addresses * sizeof(struct bpf_address) +
	       (sample->host_kernel + sample->host_user) * sizeof(__u64);
}

#endif
