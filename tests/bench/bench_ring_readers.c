/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures whether readers slow down the writer: ns per record with three attached readers, each on
 * its own thread, that copy every record, compared with none in the same run. In consumer mode one
 * of them holds the tail.
 *
 * In overwrite mode the writer does not wait for readers, and they miss many records. In consumer
 * mode it waits between two stretches until at most half of the ring is unread, so nearly every
 * cache line that it writes has been read on another CPU in the meantime. The baseline for that
 * effect is a plain memcpy() into a buffer from which three threads copy the same number of bytes.
 *
 * With fewer CPUs than threads they also share CPUs; the median excludes that.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/stretches.h"

#define READERS 3
#define AT_ONCE 64 /* records between two checks whether to continue */

static struct ring *ring, *recorder;

static struct {
	pthread_t threads[READERS];
	struct ring *readers[READERS];
	uint64_t backlog; /* records that may be unread at the beginning of a stretch */
	atomic_bool done;
} crowd;

static void write_ring(size_t payload, size_t count)
{
	write_records(ring, payload, count);
}

static void read_ring(void)
{
	read_records(ring);
}

static void wait_for_holder(void)
{
	struct ring_statistics statistics;

	read_ring();
	for (;;) {
		ring_statistics(crowd.readers[0], &statistics);
		if (statistics.unread <= crowd.backlog)
			return;
		usleep(20);
	}
}

static void write_recorder(size_t payload, size_t count)
{
	write_records(recorder, payload, count);
}

static void *keep_reading(void *reader)
{
	while (!atomic_load(&crowd.done)) {
		int read = 0;

		while (read < AT_ONCE && ring_read(reader))
			read++;
		ring_read_done(reader);
		if (read < AT_ONCE)
			usleep(100);
	}
	return NULL;
}

static void start_readers(struct ring *of)
{
	for (int i = 0; i < READERS; i++) {
		struct ring_reader_options options = { .overrun = i > 0, .newest = true };

		if (ring_attach_with(&crowd.readers[i], ring_memory_fd(of), &options) ||
		    pthread_create(&crowd.threads[i], NULL, keep_reading, crowd.readers[i]))
			exit(1);
	}
}

/* Positions as in the ring; no records, no checks. */
static struct {
	uint8_t *buffer;
	uint64_t position;
	_Atomic uint64_t head, tail;
} plain;

static void copy(size_t payload, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		memcpy(plain.buffer + plain.position % SIZE, source, payload);
		__asm__ volatile("" : : : "memory");
		plain.position += payload + sizeof(struct ring_record);
	}
}

static void wait_for_copies(void)
{
	atomic_store(&plain.head, plain.position);
	while (plain.position - atomic_load(&plain.tail) > SIZE / 2)
		usleep(20);
}

static void *keep_copying(void *is_first)
{
	uint64_t position = atomic_load(&plain.head);
	uint8_t part[STRETCH];

	while (!atomic_load(&crowd.done)) {
		uint64_t size = atomic_load(&plain.head) - position;

		if (!size)
			usleep(100);
		size = size < sizeof(part) ? size : sizeof(part);
		memcpy(part, plain.buffer + position % SIZE, size);
		__asm__ volatile("" : : "r"(part) : "memory");
		position += size;
		if (is_first)
			atomic_store(&plain.tail, position);
	}
	return NULL;
}

static void start_copying(struct ring *unused)
{
	(void)unused;
	atomic_store(&plain.head, plain.position);
	atomic_store(&plain.tail, plain.position);
	for (int i = 0; i < READERS; i++)
		if (pthread_create(&crowd.threads[i], NULL, keep_copying, i ? NULL : &plain))
			exit(1);
}

static void end_crowd(void)
{
	atomic_store(&crowd.done, true);
	for (int i = 0; i < READERS; i++) {
		pthread_join(crowd.threads[i], NULL);
		ring_destroy(crowd.readers[i]);
		crowd.readers[i] = NULL;
	}
	atomic_store(&crowd.done, false);
}

static void measure(const struct writer *alone, void (*make_room)(void),
		    void (*start)(struct ring *of), struct ring *of, size_t payload)
{
	static double times[2][STRETCHES];
	struct writer crowded = { alone->name, alone->write, make_room };
	char what[96];

	crowd.backlog = SIZE / 2 / STRETCH * records_of(payload);
	for (size_t round = 0; round < ROUNDS; round++) {
		take_turn(alone, payload, &times[0][round * PER_ROUND]);
		start(of);
		take_turn(&crowded, payload, &times[1][round * PER_ROUND]);
		end_crowd();
	}
	snprintf(what, sizeof(what), "%s: %zu bytes, %d readers", alone->name, payload, READERS);
	bench_print_relative(what, bench_median(times[1], STRETCHES), "ns", "without readers",
			     bench_median(times[0], STRETCHES));
}

int main(void)
{
	static const struct writer writers[] = {
		{ "ring", write_ring, read_ring },
		{ "ring in overwrite mode", write_recorder, do_nothing },
		{ "memcpy", copy, do_nothing },
	};
	struct ring_options options = { .size = SIZE, .mode = RING_MODE_OVERWRITE };
	struct ring_statistics statistics;

	plain.buffer = calloc(1, SIZE + STRETCH);
	if (!plain.buffer || ring_create(&ring, SIZE) || ring_create_with(&recorder, &options))
		return 1;
	for (size_t i = 0; i < 3; i++) {
		measure(&writers[0], wait_for_holder, start_readers, ring, payloads[i]);
		measure(&writers[1], do_nothing, start_readers, recorder, payloads[i]);
		measure(&writers[2], wait_for_copies, start_copying, NULL, payloads[i]);
	}
	ring_statistics(ring, &statistics);
	if (statistics.lost)
		fprintf(stderr, "bench_ring_readers: records were dropped\n");
	return statistics.lost != 0;
}
