/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ring benches measure: the median over stretches of some ten microseconds each, so that
 * other work of the machine affects few of them. Reading or releasing records between two stretches
 * is not measured. The turn of each writer begins with unmeasured records that fill its memory, so
 * that it does not pay for caches that other writers used.
 */
#ifndef KVMSCOPE_TESTS_BENCH_STRETCHES_H
#define KVMSCOPE_TESTS_BENCH_STRETCHES_H

#include <string.h>

#include "shared/ring.h"
#include "tests/bench/bench.h"

#define SIZE       (512ul << 10) /* memory of each writer: the default of a vCPU */
#define STRETCH    (SIZE / 16)   /* bytes */
#define ROUNDS_MAX 80            /* turns of each writer */
#define ROUNDS     bench_size(ROUNDS_MAX, 2)
#define WARM_UP    16 /* stretches that are not measured */
#define PER_ROUND  48 /* stretches that are measured */
#define STRETCHES  (ROUNDS_MAX * PER_ROUND)

#define RECORD_ANY 8

static const size_t payloads[] = { 16, 64, 512 };
static const uint8_t source[512];

/* Writes COUNT records of PAYLOAD bytes, then makes room for the same number again. */
struct writer {
	const char *name;
	void (*write)(size_t payload, size_t count);
	void (*make_room)(void);
};

static inline size_t records_of(size_t payload)
{
	return STRETCH / (payload + sizeof(struct ring_record));
}

/* ns per record. */
static inline double time_stretch(const struct writer *writer, size_t payload)
{
	size_t count = records_of(payload);
	uint64_t begin = bench_time(CLOCK_MONOTONIC), end;

	writer->write(payload, count);
	end = bench_time(CLOCK_MONOTONIC);
	writer->make_room();
	return (double)(end - begin) / (double)count;
}

/* Fills PER_ROUND of TIMES. */
static inline void take_turn(const struct writer *writer, size_t payload, double *times)
{
	for (size_t i = 0; i < WARM_UP + PER_ROUND; i++) {
		double time = time_stretch(writer, payload);

		if (i >= WARM_UP)
			times[i - WARM_UP] = time;
	}
}

static inline __attribute__((always_inline)) void write_records(struct ring *to, size_t payload,
								size_t count)
{
	for (size_t i = 0; i < count; i++) {
		void *record = ring_reserve(to, RECORD_ANY, payload);

		if (record)
			memcpy(record, source, payload);
		ring_commit(to, record);
	}
}

static inline void read_records(struct ring *from)
{
	ring_publish(from);
	while (ring_read(from))
		;
	ring_read_done(from);
}

static inline void do_nothing(void)
{
}

#endif
