/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot is complete, counts the records before it, and disturbs neither writer nor readers. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/ring_layout.h"
#include "tests/unit/ring_records.h"

static struct ring *new_ring(enum ring_mode mode)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .mode = mode };
	struct ring *ring = NULL;

	if (ring_create_with(&ring, &options))
		abort();
	return ring;
}

/* Every record is good, and all that was published since the ring was made is counted. */
static void check_snapshot(const struct ring_snapshot *snapshot, uint64_t published)
{
	const struct ring_record *record = NULL;
	struct tally tally = { .records = 0 };

	while ((record = ring_snapshot_next(snapshot, record)))
		count_record(&tally, record);
	CHECK_EQUAL(tally.bad, 0);
	CHECK_EQUAL(tally.records, snapshot->count);
	CHECK_EQUAL(snapshot->before + snapshot->count, published);
	CHECK(!snapshot->broken);
	if (snapshot->count)
		CHECK_EQUAL(tally.next[0], published);
}

static void check_now(struct ring *ring, uint64_t published)
{
	struct ring_snapshot snapshot;

	REQUIRE_EQUAL(ring_snapshot(ring, &snapshot), 0);
	check_snapshot(&snapshot, published);
	ring_snapshot_free(&snapshot);
}

TEST(ring_snapshot, of_an_empty_ring_is_empty)
{
	struct ring *recorder = new_ring(RING_MODE_OVERWRITE), *ring = new_ring(RING_MODE_CONSUMER);

	check_now(recorder, 0);
	check_now(ring, 0);
	ring_destroy(recorder);
	ring_destroy(ring);
}

TEST(ring_snapshot, holds_all_since_the_oldest_in_overwrite_mode)
{
	struct ring *ring = new_ring(RING_MODE_OVERWRITE);

	for (uint64_t number = 0; number < 20000; number++) {
		produce(ring, RECORD_THREAD, number, number % 37, false);
		if (number % 61 == 0)
			check_now(ring, number + 1);
	}
	ring_destroy(ring);
}

TEST(ring_snapshot, leaves_readers_where_they_are)
{
	struct ring *ring = new_ring(RING_MODE_CONSUMER);
	struct ring_snapshot snapshot;
	struct tally tally = { .records = 0 };

	for (uint64_t number = 0; number < 10; number++)
		produce(ring, RECORD_THREAD, number, 3, false);
	check_now(ring, 0);
	ring_publish(ring);
	check_now(ring, 10);
	for (int i = 0; i < 4; i++)
		CHECK(ring_read(ring));
	ring_read_done(ring);
	REQUIRE_EQUAL(ring_snapshot(ring, &snapshot), 0);
	check_snapshot(&snapshot, 10);
	CHECK_EQUAL(snapshot.before, 4);
	ring_snapshot_free(&snapshot);
	read_all(ring, &tally);
	CHECK_EQUAL(tally.records, 6);
	check_now(ring, 10);
	ring_destroy(ring);
}

TEST(ring_snapshot, reports_dropped_records)
{
	struct ring *ring = new_ring(RING_MODE_CONSUMER);
	const struct ring_record *record = NULL;
	struct tally tally = { .records = 0 };
	struct ring_snapshot snapshot;
	uint64_t written = 0;

	ring_commit(ring, ring_reserve(ring, RECORD_THREAD, SIZE_MAX));
	while (produce(ring, RECORD_THREAD, written, 60, false))
		written++;
	ring_publish(ring);
	REQUIRE_EQUAL(ring_snapshot(ring, &snapshot), 0);
	while ((record = ring_snapshot_next(&snapshot, record)))
		count_record(&tally, record);
	CHECK_EQUAL(tally.lost, 1);
	CHECK_EQUAL(snapshot.count, written);
	CHECK_EQUAL(tally.records, written);
	ring_snapshot_free(&snapshot);
	ring_destroy(ring);
}

TEST(ring_snapshot, stops_at_what_can_be_no_record)
{
	struct ring *ring = new_ring(RING_MODE_OVERWRITE);
	struct ring_record bad = { .size = 12, .type = RECORD_THREAD };
	struct ring_snapshot snapshot;

	for (uint64_t number = 0; number < 3; number++)
		produce(ring, RECORD_THREAD, number, 0, false);
	REQUIRE_EQUAL(pwrite(ring_memory_fd(ring), &bad, sizeof(bad), RING_DATA_OFFSET + 32L),
		      sizeof(bad));
	REQUIRE_EQUAL(ring_snapshot(ring, &snapshot), 0);
	CHECK(snapshot.broken);
	CHECK_EQUAL(snapshot.count, 1);
	CHECK(ring_snapshot_next(&snapshot, NULL));
	CHECK(!ring_snapshot_next(&snapshot, ring_snapshot_next(&snapshot, NULL)));
	ring_snapshot_free(&snapshot);
	ring_destroy(ring);
}

static void *write_for_a_while(void *ring)
{
	double end = now() + 0.5;

	for (uint64_t number = 0; now() < end; number++)
		produce(ring, RECORD_THREAD, number, number % 97, false);
	return NULL;
}

TEST(ring_snapshot, is_whole_while_the_writer_goes_on)
{
	struct ring *ring = new_ring(RING_MODE_OVERWRITE);
	struct ring_statistics statistics;
	struct ring_snapshot snapshot;
	double end = now() + 0.5;
	pthread_t writer;
	int taken = 0;

	pthread_create(&writer, NULL, write_for_a_while, ring);
	while (now() < end) {
		int error = ring_snapshot(ring, &snapshot);

		/* Preempted in each copy, which a tiny ring does not survive. */
		if (error == -11)
			continue;
		REQUIRE_EQUAL(error, 0);
		check_snapshot(&snapshot, snapshot.before + snapshot.count);
		ring_snapshot_free(&snapshot);
		taken++;
	}
	pthread_join(writer, NULL);
	CHECK(taken > 0);
	ring_statistics(ring, &statistics);
	check_now(ring, statistics.written);
	ring_destroy(ring);
}
