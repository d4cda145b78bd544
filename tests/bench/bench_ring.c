// SPDX-License-Identifier: Apache-2.0
/*
 * ns that the writer needs for a record of 16, 64 and 512 bytes of payload,
 * beside a memcpy() of the same bytes through a buffer of the same size. The
 * ring is emptied between two timed stretches, so that nothing is dropped.
 */
#include <string.h>

#include "shared/ring.h"
#include "tests/bench/bench.h"

#define SIZE   (1ul << 20)
#define ROUNDS 400
#define RUNS   9

static uint8_t source[512];
static uint8_t *buffer;

static double time_copies(size_t payload)
{
	size_t count = SIZE / 2 / (payload + 8), at = 0;
	uint64_t spent = 0;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t begin = bench_time(CLOCK_MONOTONIC);

		for (size_t i = 0; i < count; i++) {
			memcpy(buffer + at, source, payload);
			__asm__ volatile("" : : : "memory");
			at = (at + payload + 8) & (SIZE - 1) & ~7ul;
		}
		spent += bench_time(CLOCK_MONOTONIC) - begin;
	}
	return (double)spent / (count * ROUNDS);
}

static double time_records(struct ring *ring, size_t payload)
{
	size_t count = SIZE / 2 / (payload + 8);
	uint64_t spent = 0;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t begin = bench_time(CLOCK_MONOTONIC);

		for (size_t i = 0; i < count; i++) {
			void *record = ring_reserve(ring, 8, payload);

			if (record)
				memcpy(record, source, payload);
			ring_commit(ring, record);
		}
		spent += bench_time(CLOCK_MONOTONIC) - begin;
		ring_publish(ring);
		while (ring_read(ring))
			;
		ring_read_done(ring);
	}
	return (double)spent / (count * ROUNDS);
}

static void measure(struct ring *ring, size_t payload)
{
	double copies[RUNS], records[RUNS];
	char what[64];

	for (int run = 0; run < RUNS; run++) {
		copies[run] = time_copies(payload);
		records[run] = time_records(ring, payload);
	}
	snprintf(what, sizeof(what), "ring: write a record of %zu bytes", payload);
	bench_print_beside(what, bench_median(records, RUNS), "ns", "memcpy", bench_median(copies, RUNS));
}

int main(void)
{
	struct ring_statistics statistics;
	struct ring *ring;

	buffer = malloc(SIZE + sizeof(source));
	if (!buffer || ring_create(&ring, SIZE))
		return 1;
	memset(buffer, 1, SIZE + sizeof(source));
	measure(ring, 16);
	measure(ring, 64);
	measure(ring, 512);
	ring_statistics(ring, &statistics);
	ring_destroy(ring);
	free(buffer);
	return statistics.lost != 0;
}
