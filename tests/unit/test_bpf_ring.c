// SPDX-License-Identifier: Apache-2.0
/* The reader of the ring that BPF's program writes: here its writer is the test, by the rules that the
 * program has (docs/ring-format.md). */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/attach/bpf_ring.h"

#define CHUNKS  4
#define SIZE    ((size_t)CHUNKS * BPF_CHUNK)
#define RECORDS 5000

static struct bpf_vcpu vcpu;

static struct bpf_ring new_ring(void)
{
	void *chunks = aligned_alloc(64, SIZE);

	if (!chunks)
		abort();
	memset(chunks, 0xff, SIZE);
	vcpu = (struct bpf_vcpu){ .chunks = CHUNKS };
	return (struct bpf_ring){ .vcpu = &vcpu, .chunks = chunks };
}

static void free_ring(struct bpf_ring *ring)
{
	free((void *)(uintptr_t)ring->chunks);
}

/* A sample of so many addresses, whose time is a number; false: there is no room. */
static bool put(const struct bpf_ring *ring, uint64_t number, uint32_t addresses)
{
	uint64_t head = vcpu.head, offset = head % BPF_CHUNK;
	struct bpf_whole_sample *sample;

	if (offset > BPF_CHUNK - sizeof(*sample))
		head += BPF_CHUNK - offset;
	if (head + sizeof(*sample) - vcpu.tail > SIZE) {
		vcpu.lost++;
		return false;
	}
	sample = (void *)(uintptr_t)(ring->chunks + head % SIZE);
	sample->head = (struct bpf_sample){
		.size = (uint32_t)(sizeof(sample->head) + addresses * sizeof(struct bpf_address)),
		.time = number,
		.addresses = addresses,
	};
	for (uint32_t i = 0; i < addresses; i++)
		sample->addresses[i] = (struct bpf_address){ number, i };
	__atomic_store_n(&vcpu.head, head + sample->head.size, __ATOMIC_RELEASE);
	return true;
}

static bool take(struct bpf_ring *ring, uint64_t number)
{
	const struct bpf_whole_sample *sample = bpf_ring_first(ring, bpf_ring_end(ring));
	bool right;

	if (!sample)
		return false;
	right = sample->head.time == number;
	for (uint32_t i = 0; i < sample->head.addresses; i++)
		right = right && sample->addresses[i].gva == number && sample->addresses[i].page == i;
	bpf_ring_release(ring, sample);
	return right;
}

TEST(bpf_ring, one_that_is_empty_has_no_sample)
{
	struct bpf_ring ring = new_ring();

	CHECK(!bpf_ring_first(&ring, bpf_ring_end(&ring)));
	CHECK_EQUAL(bpf_ring_take_lost(&ring), 0);
	free_ring(&ring);
}

TEST(bpf_ring, samples_of_all_sizes_come_in_order_around_its_end)
{
	struct bpf_ring ring = new_ring();
	uint64_t written = 0, read = 0;

	while (read < RECORDS) {
		for (int i = 0; i < 20; i++, written++)
			REQUIRE(put(&ring, written, (uint32_t)(written * 37 % (BPF_ADDRESSES_MAX + 1))));
		for (; read < written; read++)
			REQUIRE(take(&ring, read));
		REQUIRE(!bpf_ring_first(&ring, bpf_ring_end(&ring)));
	}
	CHECK(vcpu.head > 10 * SIZE);
	free_ring(&ring);
}

TEST(bpf_ring, one_that_is_full_loses_what_comes_and_says_how_many)
{
	struct bpf_ring ring = new_ring();
	uint64_t written = 0;

	while (put(&ring, written, BPF_ADDRESSES_MAX))
		written++;
	CHECK(!put(&ring, written, 1));
	CHECK_EQUAL(bpf_ring_take_lost(&ring), 2);
	CHECK_EQUAL(bpf_ring_take_lost(&ring), 0);
	for (uint64_t i = 0; i < written; i++)
		REQUIRE(take(&ring, i));
	CHECK(!bpf_ring_first(&ring, bpf_ring_end(&ring)));
	CHECK(put(&ring, 1, 1));
	CHECK(take(&ring, 1));
	free_ring(&ring);
}

TEST(bpf_ring, a_sample_stays_until_it_is_released)
{
	struct bpf_ring ring = new_ring();
	const struct bpf_whole_sample *first;

	REQUIRE(put(&ring, 7, 3));
	first = bpf_ring_first(&ring, bpf_ring_end(&ring));
	while (put(&ring, 8, BPF_ADDRESSES_MAX))
		;
	CHECK(bpf_ring_first(&ring, bpf_ring_end(&ring)) == first);
	CHECK(take(&ring, 7));
	CHECK(take(&ring, 8));
	free_ring(&ring);
}

/* Whoever is slower than the samples come reads to an end, too. */
TEST(bpf_ring, what_comes_behind_an_end_is_not_before_it)
{
	struct bpf_ring ring = new_ring();
	uint64_t end;

	REQUIRE(put(&ring, 1, 3));
	end = bpf_ring_end(&ring);
	REQUIRE(put(&ring, 2, 3));
	REQUIRE(bpf_ring_first(&ring, end));
	CHECK(take(&ring, 1));
	CHECK(!bpf_ring_first(&ring, end));
	CHECK(take(&ring, 2));
	free_ring(&ring);
}
