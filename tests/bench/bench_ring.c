/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns that a writer needs for a record of 16, 64 and 512 bytes: the ring in both modes, compared
 * with baselines that are measured alternately in the same run, each in memory of the same size:
 * - memcpy: the same bytes;
 * - mutex ring: a ring whose head and tail are protected by an uncontended mutex;
 * - wfcqueue: liburcu's queue, which has no memory of its own. Each node is allocated with malloc()
 * and freed by the reader; in a second variant the nodes are preallocated and reused without a
 * check, which no real program could do;
 * - LTTng-UST: an event with a sequence of the same bytes, which also has a timestamp; 1 MiB per
 * CPU, overwritten, no reader.
 */
#include <pthread.h>
#include <string.h>

#include "tests/bench/lttng_session.h"
#include "tests/bench/stretches.h"

#if __has_include(<urcu/wfcqueue.h>)
#define _LGPL_SOURCE
#include <urcu/wfcqueue.h>
#define HAVE_WFCQUEUE 1
#else
#define HAVE_WFCQUEUE 0
#endif

static struct ring *ring, *recorder;

static void write_ring(size_t payload, size_t count)
{
	write_records(ring, payload, count);
}

static void read_ring(void)
{
	read_records(ring);
}

static void write_recorder(size_t payload, size_t count)
{
	write_records(recorder, payload, count);
}

static uint8_t *buffer;

static void copy(size_t payload, size_t count)
{
	static size_t at;

	for (size_t i = 0; i < count; i++) {
		memcpy(buffer + at, source, payload);
		__asm__ volatile("" : : : "memory");
		at = (at + payload + sizeof(struct ring_record)) & (SIZE - 1) & ~7ul;
	}
}

static struct {
	pthread_mutex_t lock;
	size_t head, tail;
	uint64_t lost;
} locked = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void write_locked(size_t payload, size_t count)
{
	size_t size = (sizeof(struct ring_record) + payload + 7) & ~7ul;

	for (size_t i = 0; i < count; i++) {
		pthread_mutex_lock(&locked.lock);
		if (locked.head + size - locked.tail > SIZE) {
			locked.lost++;
		} else {
			struct ring_record *record = (void *)(buffer + (locked.head & (SIZE - 1)));

			record->size = size;
			record->type = RECORD_ANY;
			record->flags = 0;
			memcpy(record->payload, source, payload);
			locked.head += size;
		}
		pthread_mutex_unlock(&locked.lock);
	}
}

static void read_locked(void)
{
	pthread_mutex_lock(&locked.lock);
	locked.tail = locked.head;
	pthread_mutex_unlock(&locked.lock);
}

#if HAVE_WFCQUEUE

static struct cds_wfcq_head queue_head;
static struct cds_wfcq_tail queue_tail;

struct node {
	struct cds_wfcq_node queue;
	uint8_t payload[];
};

static inline void enqueue(struct node *node, size_t payload)
{
	memcpy(node->payload, source, payload);
	cds_wfcq_node_init(&node->queue);
	cds_wfcq_enqueue(&queue_head, &queue_tail, &node->queue);
}

static void write_queue(size_t payload, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct node *node = malloc(sizeof(*node) + payload);

		if (!node)
			abort();
		enqueue(node, payload);
	}
}

static void read_queue(void)
{
	struct cds_wfcq_node *node;

	while ((node = cds_wfcq_dequeue_blocking(&queue_head, &queue_tail)))
		free(node);
}

static void write_ready_queue(size_t payload, size_t count)
{
	static size_t at;

	for (size_t i = 0; i < count; i++) {
		struct node *node = (void *)(buffer + at);

		at = (at + sizeof(*node) + payload) & (SIZE - 1) & ~7ul;
		enqueue(node, payload);
	}
}

static void read_ready_queue(void)
{
	while (cds_wfcq_dequeue_blocking(&queue_head, &queue_tail))
		;
}

static const char *queue_missing(void)
{
	cds_wfcq_init(&queue_head, &queue_tail);
	return NULL;
}

#else

#define write_queue       NULL
#define read_queue        NULL
#define write_ready_queue NULL
#define read_ready_queue  NULL

static const char *queue_missing(void)
{
	return "Debian package liburcu-dev is missing";
}

#endif

static void trace(size_t payload, size_t count)
{
	lttng_session_write(source, payload, count);
}

enum { RING, RECORDER, MEMCPY, MUTEX, WFCQUEUE, WFCQUEUE_READY, LTTNG, WRITERS };

static const struct writer writers[WRITERS] = {
	[RING] = { "ring", write_ring, read_ring },
	[RECORDER] = { "ring in overwrite mode", write_recorder, do_nothing },
	[MEMCPY] = { "memcpy", copy, do_nothing },
	[MUTEX] = { "mutex ring", write_locked, read_locked },
	[WFCQUEUE] = { "wfcqueue", write_queue, read_queue },
	[WFCQUEUE_READY] = { "wfcqueue, nodes ready", write_ready_queue, read_ready_queue },
	[LTTNG] = { "LTTng-UST", trace, do_nothing },
};

/*
 * Writing a record of a sample's size must not take much longer than copying its bytes, and less
 * than with any other structure that has to allocate space for it.
 */
static struct bench_bound bound_relative(size_t writer, size_t other, size_t payload, double time)
{
	if (writer != RING || payload != 64 || other == WFCQUEUE_READY)
		return (struct bench_bound){ 0 };
	return (struct bench_bound){ BENCH_MOST, other == MEMCPY ? 1.3 * time + 10 : time };
}

static void measure(size_t payload, const char *const *missing)
{
	static double times[WRITERS][STRETCHES];
	double medians[WRITERS];
	char what[64];

	for (size_t round = 0; round < ROUNDS; round++)
		for (size_t k = 0; k < WRITERS; k++)
			if (!missing[k])
				take_turn(&writers[k], payload, &times[k][round * PER_ROUND]);
	for (size_t k = 0; k < WRITERS; k++)
		medians[k] = bench_median(times[k], STRETCHES);
	for (size_t k = RING; k <= RECORDER; k++) {
		snprintf(what, sizeof(what), "%s: write a record of %zu bytes", writers[k].name,
			 payload);
		for (size_t other = MEMCPY; other < WRITERS; other++)
			if (!missing[other])
				bench_print_relative_bound(
					what, medians[k], "ns", writers[other].name, medians[other],
					bound_relative(k, other, payload, medians[other]));
	}
}

static void *return_immediately(void *unused)
{
	return unused;
}

/* glibc takes its locks without atomic instructions in a process that never had a second thread. */
static void become_threaded(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, return_immediately, NULL))
		pthread_join(thread, NULL);
}

static bool prepare(void)
{
	struct ring_options options = { .size = SIZE, .mode = RING_MODE_OVERWRITE };

	buffer = malloc(SIZE + 2 * sizeof(source));
	if (!buffer || ring_create(&ring, SIZE) || ring_create_with(&recorder, &options))
		return false;
	memset(buffer, 1, SIZE + 2 * sizeof(source));
	become_threaded();
	return true;
}

/* In consumer mode, and for the mutex ring. Dropped records would not have been measured. */
static uint64_t dropped(void)
{
	struct ring_statistics statistics;

	ring_statistics(ring, &statistics);
	return statistics.lost + locked.lost;
}

int main(int count, char **arguments)
{
	const char *missing[WRITERS] = { NULL };

	(void)count;
	lttng_session_start(arguments);
	missing[LTTNG] = lttng_session_missing();
	missing[WFCQUEUE] = missing[WFCQUEUE_READY] = queue_missing();
	for (size_t i = 0; i < WRITERS; i++)
		if (missing[i]) {
			char what[64];

			snprintf(what, sizeof(what), "ring: relative to %s", writers[i].name);
			bench_skip(what, missing[i]);
		}
	if (!prepare())
		return 1;
	for (size_t i = 0; i < 3; i++)
		measure(payloads[i], missing);
	if (dropped())
		fprintf(stderr, "bench_ring: records were dropped\n");
	lttng_session_end();
	return dropped() ? 1 : bench_status();
}
