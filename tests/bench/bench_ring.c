// SPDX-License-Identifier: Apache-2.0
/*
 * ns that the writer needs for a record of 16, 64 and 512 bytes of payload,
 * in both modes, beside a memcpy() of the same bytes through a buffer of the
 * same size, with and without a mutex. The consumer ring is emptied between
 * two timed stretches, so that nothing is dropped.
 */
#include <pthread.h>
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

/* In overwrite mode nobody needs to read, and nothing is dropped. */
static double time_overwriting(struct ring *ring, size_t payload)
{
	size_t count = ROUNDS * (SIZE / 2 / (payload + 8));
	uint64_t begin = bench_time(CLOCK_MONOTONIC);

	for (size_t i = 0; i < count; i++) {
		void *record = ring_reserve(ring, 8, payload);

		if (record)
			memcpy(record, source, payload);
		ring_commit(ring, record);
	}
	return (double)(bench_time(CLOCK_MONOTONIC) - begin) / count;
}

/* What a lock costs that nobody else wants. */
static double time_mutex(size_t payload)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	size_t count = ROUNDS * (SIZE / 2 / (payload + 8)), at = 0;
	uint64_t begin = bench_time(CLOCK_MONOTONIC);

	for (size_t i = 0; i < count; i++) {
		pthread_mutex_lock(&mutex);
		memcpy(buffer + at, source, payload);
		at = (at + payload + 8) & (SIZE - 1) & ~7ul;
		pthread_mutex_unlock(&mutex);
	}
	return (double)(bench_time(CLOCK_MONOTONIC) - begin) / count;
}

static void measure(struct ring *ring, struct ring *recorder, size_t payload)
{
	double overwriting[RUNS], mutex[RUNS];
	double copies[RUNS], records[RUNS];
	char what[64];

	for (int run = 0; run < RUNS; run++) {
		copies[run] = time_copies(payload);
		records[run] = time_records(ring, payload);
		overwriting[run] = time_overwriting(recorder, payload);
		mutex[run] = time_mutex(payload);
	}
	snprintf(what, sizeof(what), "ring: write a record of %zu bytes", payload);
	bench_print_beside(what, bench_median(records, RUNS), "ns", "memcpy", bench_median(copies, RUNS));
	bench_print_beside(what, bench_median(records, RUNS), "ns", "memcpy under a mutex",
			   bench_median(mutex, RUNS));
	snprintf(what, sizeof(what), "ring: write a record of %zu bytes in overwrite mode", payload);
	bench_print_beside(what, bench_median(overwriting, RUNS), "ns", "memcpy", bench_median(copies, RUNS));
}

static void *return_at_once(void *unused)
{
	return unused;
}

/* In a process that never had a second thread, glibc takes its locks without atomic instructions. */
static void become_threaded(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, return_at_once, NULL))
		pthread_join(thread, NULL);
}

int main(void)
{
	struct ring_statistics statistics;
	struct ring_options options = { .size = SIZE, .mode = RING_MODE_OVERWRITE };
	struct ring *ring, *recorder;

	buffer = malloc(SIZE + sizeof(source));
	if (!buffer || ring_create(&ring, SIZE) || ring_create_with(&recorder, &options))
		return 1;
	become_threaded();
	memset(buffer, 1, SIZE + sizeof(source));
	measure(ring, recorder, 16);
	measure(ring, recorder, 64);
	measure(ring, recorder, 512);
	ring_statistics(ring, &statistics);
	ring_destroy(ring);
	ring_destroy(recorder);
	free(buffer);
	return statistics.lost != 0;
}
