/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of the BPF program: its writer's source, and its reader. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/bpf_on_host.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/bpf/ring_writer.h"
#include "vmm/attach/bpf_ringbuf.h"

#define CHUNKS  4
#define SIZE    ((size_t)CHUNKS * BPF_CHUNK)
#define RECORDS 5000
#define FIRST   3 /* element of the map, after those of another vCPU */

static struct bpf_vcpu *vcpu;

/* As mapped by the loader. */
static struct bpf_ring new_ring(void)
{
	host_map.count = FIRST + 1 + CHUNKS;
	host_map.elements = aligned_alloc(64, (size_t)host_map.count * BPF_CHUNK);
	if (!host_map.elements)
		abort();
	memset(host_map.elements, 0xff, (size_t)host_map.count * BPF_CHUNK);
	vcpu = (void *)(host_map.elements + (size_t)FIRST * BPF_CHUNK);
	*vcpu = (struct bpf_vcpu){ .chunks = CHUNKS };
	bells.rung = 0;
	return (struct bpf_ring){ .vcpu = vcpu, .chunks = (const uint8_t *)vcpu + BPF_CHUNK };
}

static void free_ring(struct bpf_ring *ring)
{
	ring->vcpu = NULL;
	free(host_map.elements);
	host_map.count = 0;
}

/* Writes a sample with that number of addresses, and NUMBER as its time. False: no room. */
static bool write_sample(uint64_t number, uint32_t addresses)
{
	__u64 ahead;
	struct bpf_whole_sample *sample = reserve(&host_map, FIRST, vcpu, &ahead);

	if (!sample) {
		vcpu->lost++;
		return false;
	}
	sample->head = (struct bpf_sample){ .time = number, .addresses = addresses };
	sample->head.size = size_of(&sample->head);
	for (uint32_t i = 0; i < addresses; i++)
		sample->addresses[i] = (struct bpf_address){ number, i };
	commit(vcpu, ahead + sample->head.size, 0);
	return true;
}

static bool sample(struct bpf_ring *ring, uint64_t number)
{
	const struct bpf_whole_sample *sample = bpf_ring_first(ring, bpf_ring_end(ring));
	bool right;

	if (!sample)
		return false;
	right = sample->head.time == number;
	for (uint32_t i = 0; i < sample->head.addresses; i++)
		right = right && sample->addresses[i].gva == number &&
			sample->addresses[i].page == i;
	bpf_ring_release(ring, sample);
	return right;
}

TEST(bpf_ring, an_empty_ring_has_no_sample)
{
	struct bpf_ring ring = new_ring();

	CHECK(!bpf_ring_first(&ring, bpf_ring_end(&ring)));
	CHECK_EQUAL(bpf_ring_consume_lost(&ring), 0);
	free_ring(&ring);
}

TEST(bpf_ring, samples_of_all_sizes_come_in_order_around_its_end)
{
	struct bpf_ring ring = new_ring();
	uint64_t written = 0, read = 0;

	while (read < RECORDS) {
		for (int i = 0; i < 20; i++, written++)
			REQUIRE(write_sample(written,
					     (uint32_t)(written * 37 % (BPF_ADDRESSES_MAX + 1))));
		for (; read < written; read++)
			REQUIRE(sample(&ring, read));
		REQUIRE(!bpf_ring_first(&ring, bpf_ring_end(&ring)));
	}
	CHECK(vcpu->head > 10 * SIZE);
	free_ring(&ring);
}

TEST(bpf_ring, a_full_ring_counts_lost_samples)
{
	struct bpf_ring ring = new_ring();
	uint64_t written = 0;

	while (write_sample(written, BPF_ADDRESSES_MAX))
		written++;
	CHECK(!write_sample(written, 1));
	CHECK_EQUAL(bpf_ring_consume_lost(&ring), 2);
	CHECK_EQUAL(bpf_ring_consume_lost(&ring), 0);
	for (uint64_t i = 0; i < written; i++)
		REQUIRE(sample(&ring, i));
	CHECK(!bpf_ring_first(&ring, bpf_ring_end(&ring)));
	CHECK(write_sample(1, 1));
	CHECK(sample(&ring, 1));
	free_ring(&ring);
}

TEST(bpf_ring, a_sample_stays_until_it_is_released)
{
	struct bpf_ring ring = new_ring();
	const struct bpf_whole_sample *first;

	REQUIRE(write_sample(7, 3));
	first = bpf_ring_first(&ring, bpf_ring_end(&ring));
	while (write_sample(8, BPF_ADDRESSES_MAX))
		;
	CHECK(bpf_ring_first(&ring, bpf_ring_end(&ring)) == first);
	CHECK(sample(&ring, 7));
	CHECK(sample(&ring, 8));
	free_ring(&ring);
}

/* A reader that is slower than the writer reaches an end, too. */
TEST(bpf_ring, later_samples_are_after_the_end)
{
	struct bpf_ring ring = new_ring();
	uint64_t end;

	REQUIRE(write_sample(1, 3));
	end = bpf_ring_end(&ring);
	REQUIRE(write_sample(2, 3));
	REQUIRE(bpf_ring_first(&ring, end));
	CHECK(sample(&ring, 1));
	CHECK(!bpf_ring_first(&ring, end));
	CHECK(sample(&ring, 2));
	free_ring(&ring);
}

static bool is_in_one_chunk(const struct bpf_ring *ring, const struct bpf_whole_sample *sample)
{
	size_t offset = (size_t)((const uint8_t *)sample - ring->chunks);

	return offset / BPF_CHUNK == (offset + sample->head.size - 1) / BPF_CHUNK &&
	       offset + sample->head.size <= SIZE;
}

TEST(bpf_ring, samples_are_contiguous)
{
	struct bpf_ring ring = new_ring();
	const struct bpf_whole_sample *sample;

	for (uint64_t i = 0; i < RECORDS; i++) {
		REQUIRE(write_sample(i, (uint32_t)(i * 41 % (BPF_ADDRESSES_MAX + 1))));
		sample = bpf_ring_first(&ring, bpf_ring_end(&ring));
		REQUIRE(sample && is_in_one_chunk(&ring, sample));
		bpf_ring_release(&ring, sample);
	}
	free_ring(&ring);
}

/* The longest sample has to fit before anything that is not released. */
TEST(bpf_ring, unreleased_samples_are_not_overwritten)
{
	struct bpf_ring ring = new_ring();
	uint64_t written = 0, read = 0;

	for (uint32_t i = 0; i < RECORDS; i++) {
		while (write_sample(written, i % (BPF_ADDRESSES_MAX + 1)))
			written++;
		CHECK(vcpu->head - vcpu->tail <= SIZE);
		CHECK(vcpu->head - vcpu->tail >
		      SIZE - 2 * sizeof(struct bpf_whole_sample) - BPF_CHUNK);
		for (uint32_t k = 0; k <= i % 7; k++)
			REQUIRE(sample(&ring, read++));
	}
	while (read < written)
		REQUIRE(sample(&ring, read++));
	free_ring(&ring);
}

TEST(bpf_ring, the_bell_rings_once_for_a_waiting_reader)
{
	struct bpf_ring ring = new_ring();

	CHECK(write_sample(1, 0));
	CHECK_EQUAL(bells.rung, 0);
	bpf_ring_wait(&ring);
	CHECK(write_sample(2, 0));
	CHECK(write_sample(3, 0));
	CHECK_EQUAL(bells.rung, 1);
	bpf_ring_wait(&ring);
	CHECK(write_sample(4, 0));
	CHECK_EQUAL(bells.rung, 2);
	free_ring(&ring);
}
