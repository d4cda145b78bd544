/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/bpf_ringbuf.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

/* The position of the next record: none crosses the end of a chunk. */
static uint64_t first_position(const struct bpf_ring *ring)
{
	uint64_t tail = ring->vcpu->tail, offset = tail & (BPF_CHUNK - 1);

	return offset > BPF_CHUNK - sizeof(struct bpf_whole_sample) ? tail + BPF_CHUNK - offset
								    : tail;
}

static const struct bpf_whole_sample *at(const struct bpf_ring *ring, uint64_t position)
{
	uint64_t size = (uint64_t)ring->vcpu->chunks * BPF_CHUNK;

	return (const void *)(ring->chunks + (position & (size - 1)));
}

static bool has_copies(const struct bpf_sample *head)
{
	if (!head->addresses || head->addresses > BPF_CODE_PAGES || head->copied > BPF_STACKS_MAX)
		return false;
	for (unsigned int i = 0; i < BPF_STACKS; i++)
		if (head->stacks[i].at > head->copied ||
		    head->stacks[i].size > head->copied - head->stacks[i].at)
			return false;
	return true;
}

/* Checks a record as the program writes them. */
static bool is_whole(const struct bpf_sample *head, uint64_t room)
{
	uint64_t addresses = head->copied ? BPF_CODE_PAGES : head->addresses;

	return head->size >= sizeof(*head) && head->size <= room &&
	       head->addresses <= BPF_ADDRESSES_MAX && (!head->copied || has_copies(head)) &&
	       head->size - sizeof(*head) >= head->copied + addresses * sizeof(struct bpf_address);
}

uint64_t bpf_ring_end(const struct bpf_ring *ring)
{
	return __atomic_load_n(&ring->vcpu->head, __ATOMIC_ACQUIRE);
}

const struct bpf_whole_sample *bpf_ring_first(const struct bpf_ring *ring, uint64_t end)
{
	const struct bpf_whole_sample *sample;
	uint64_t position;

	if (ring->vcpu->tail == end)
		return NULL;
	position = first_position(ring);
	sample = at(ring, position);
	assert(is_whole(&sample->head, end - position));
	return sample;
}

void bpf_ring_release(struct bpf_ring *ring, const struct bpf_whole_sample *sample)
{
	uint64_t position = first_position(ring);

	assert(sample == at(ring, position));
	__atomic_store_n(&ring->vcpu->tail, position + sample->head.size, __ATOMIC_RELEASE);
}

/* Pairs with commit() of bpf/ring_writer.h. */
void bpf_ring_wait(struct bpf_ring *ring)
{
	__atomic_store_n(&ring->vcpu->reader_waits, 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

uint64_t bpf_ring_consume_lost(struct bpf_ring *ring)
{
	uint64_t lost = __atomic_load_n(&ring->vcpu->lost, __ATOMIC_RELAXED),
		 more = lost - ring->lost;

	ring->lost = lost;
	return more;
}
