/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every interleaving of the ring's writer, its handler and its readers, in small scenarios
 * (search.h). Each reader's records are compared with what was written: complete records, in order,
 * none twice, and each missing one reported.
 */
#include <stdio.h>

#include "shared/ring_layout.h"
#include "tests/ring/search.h"
#include "tests/unit/ring_records.h"

#define READERS    3
#define RING_SIZE  RING_SIZE_MIN
#define SMALL_SIZE (sizeof(struct ring_record) + sizeof(struct payload))

/* What a reader received. */
struct got {
	struct ring *ring;
	bool holds;          /* it holds the tail, so it is never overrun */
	uint64_t before;     /* records before its first one */
	uint64_t next;       /* the lowest number of the thread's records that may follow */
	uint64_t by_handler; /* one bit for each received number of the handler */
	uint64_t records, lost, overrun;
};

/* Restored by the search, since it is the scenarios' state. */
static struct {
	struct ring *ring;
	struct payload *outer;
	struct got readers[READERS];
	uint64_t produced[2]; /* by record type */
	/*
	 * Reservations requested, granted, about to be finished, and finished; of these, committed.
	 */
	uint64_t asked, got, ending, ended, committed;
	uint64_t safe; /* records committed when none was open: a reader must see them */
	bool gaps;     /* there are gaps that are not reported to readers: discarded and nested
			* records */
} at;

/* --- writing ---------------------------------------------------------------- */

static struct payload *reserve(uint16_t type, uint64_t words)
{
	struct payload *payload;
	uint64_t number = at.produced[type - RECORD_THREAD]++;

	at.asked++;
	payload = ring_reserve(at.ring, type, sizeof(*payload) + 8 * words);
	if (payload) {
		at.got++;
		fill_payload(payload, number, words);
	}
	return payload;
}

static void finish(struct payload *payload, bool discard)
{
	at.ending += payload != NULL;
	if (discard)
		ring_discard(at.ring, payload);
	else
		ring_commit(at.ring, payload);
	at.ended += payload != NULL;
	at.committed += payload && !discard;
	if (!ring_open_of(at.ring->writer.state))
		at.safe = at.committed;
}

static void write_record(uint64_t words)
{
	finish(reserve(RECORD_THREAD, words), false);
}

/* Writes records up to POSITION, so that the next one starts there. */
static void fill_up_to(uint64_t position)
{
	uint64_t from = ring_position_of(at.ring->writer.state);

	while (position - from > RING_SIZE / 4) {
		write_record((RING_SIZE / 4 - SMALL_SIZE) / 8);
		from = ring_position_of(at.ring->writer.state);
	}
	if (position > from)
		write_record((position - from - SMALL_SIZE) / 8);
}

static void handler_writes(void)
{
	at.gaps = true;
	finish(reserve(RECORD_HANDLER, 0), false);
}

static void handler_discards_below(void)
{
	struct payload *below;

	at.gaps = true;
	below = reserve(RECORD_HANDLER, 0);
	finish(reserve(RECORD_HANDLER, 0), false);
	finish(below, true);
}

static void handler_publishes(void)
{
	ring_publish(at.ring);
}

/* --- reading ---------------------------------------------------------------- */

static void check_payload(struct got *got, const struct ring_record *record)
{
	const struct payload *payload = (const struct payload *)record->payload;
	bool by_handler = record->type == RECORD_HANDLER;

	EXPECT(record->type == RECORD_THREAD || by_handler);
	EXPECT(payload_is_good(record));
	if (by_handler) {
		/* A nested handler may overtake the handler that it interrupts. */
		EXPECT(!(got->by_handler >> payload->number & 1));
		got->by_handler |= 1ull << payload->number;
	} else {
		EXPECT(payload->number >= got->next);
		got->next = payload->number + 1;
	}
	if (!at.gaps)
		EXPECT_EQUAL(payload->number,
			     got->before + got->records + got->overrun + got->lost);
	got->records++;
}

static void check_record(struct got *got, const struct ring_record *record)
{
	const struct ring_lost *lost = (const struct ring_lost *)record->payload;

	if (record->type == RING_RECORD_LOST) {
		got->lost += lost->count;
	} else if (record->type == RING_RECORD_OVERRUN) {
		EXPECT(!got->holds);
		got->overrun += lost->count;
	} else {
		check_payload(got, record);
	}
}

static void read_up_to(struct got *got, int records)
{
	const struct ring_record *record;

	while (records-- && (record = ring_read(got->ring))) {
		check_record(got, record);
		/* Clear the reader's copy, so that it does not distinguish states. */
		memset(got->ring->reader.copy, 0, record->size);
	}
	ring_read_done(got->ring);
}

static void read_rest(struct got *got)
{
	read_up_to(got, 1000);
}

/* The reader missed nothing that was not reported to it. */
static void check_reader(const struct got *got)
{
	struct ring_statistics statistics;

	ring_statistics(got->ring, &statistics);
	EXPECT_EQUAL(statistics.broken, 0);
	EXPECT_EQUAL(statistics.overrun, got->overrun);
	EXPECT_EQUAL(statistics.unread, 0);
	EXPECT_EQUAL(got->before + got->records + got->overrun, statistics.written);
}

static void check_readers(void)
{
	struct ring_statistics statistics;

	ring_statistics(at.ring, &statistics);
	EXPECT_EQUAL(statistics.written + statistics.discarded + statistics.lost, at.asked);
	EXPECT_EQUAL(statistics.open, 0);
	for (int i = 0; i < READERS; i++) {
		const struct got *got = &at.readers[i];

		if (!got->ring)
			continue;
		check_reader(got);
		/* Every loss is reported in the stream, unless the report was overwritten. */
		if (!got->overrun)
			EXPECT_EQUAL(got->lost, statistics.lost);
	}
}

/* Runs alone, after all threads. */
static void check_end(void)
{
	/* Losses whose report has no room are reported by the next flush. */
	for (int i = 0; i < 2; i++) {
		ring_flush(at.ring);
		for (int k = 0; k < READERS; k++)
			if (at.readers[k].ring)
				read_rest(&at.readers[k]);
	}
	check_readers();
}

/* Does not wait for the readers that hold the tail. */
static void attach_stranger(struct got *stranger)
{
	struct ring_reader_options options = { .overrun = true };
	struct ring_statistics statistics;

	*stranger = (struct got){ .records = 0 };
	if (ring_attach_with(&stranger->ring, ring_memory_fd(at.ring), &options))
		return search_fail(__FILE__, __LINE__, "cannot attach");
	ring_statistics(stranger->ring, &statistics);
	stranger->before = statistics.before;
}

/* Attaches now, and finds what all others found, or a report of how much is missing. */
static void check_stranger(void)
{
	struct got stranger;

	attach_stranger(&stranger);
	read_rest(&stranger);
	check_reader(&stranger);
}

/* Overwrite mode: the same while the tail moves past everything that the threads wrote. */
static void check_end_and_after(void)
{
	for (int i = 0; i < 6; i++) {
		ring_flush(at.ring);
		check_stranger();
		write_record((RING_SIZE / 4 - SMALL_SIZE) / 8);
	}
	check_end();
}

/*
 * A reader attaches after the writer was killed: it finds complete records, all that were safe, and
 * the number of missing ones.
 */
static void check_killed(void)
{
	struct ring_statistics statistics;
	struct got stranger;

	attach_stranger(&stranger);
	read_rest(&stranger);
	ring_statistics(stranger.ring, &statistics);
	EXPECT_EQUAL(statistics.broken, 0);
	EXPECT(at.got - at.ending <= statistics.open);
	EXPECT(statistics.open <= at.asked - at.ended);
	EXPECT_EQUAL(stranger.overrun, statistics.overrun);
	EXPECT_EQUAL(stranger.before + stranger.records + stranger.overrun + statistics.unread,
		     statistics.written);
	EXPECT(stranger.before + stranger.records + stranger.overrun >= at.safe);
}

/* All records that are published at one moment, while the writer continues. */
static void take_snapshot(void)
{
	struct got got = { .records = 0 };
	struct ring_snapshot snapshot;
	const struct ring_record *record = NULL;

	/*
	 * Fails only if it is overwritten in each attempt, which needs more records than these
	 * scenarios write.
	 */
	if (ring_snapshot(at.ring, &snapshot))
		return search_fail(__FILE__, __LINE__, "no snapshot");
	EXPECT(!snapshot.broken);
	got.before = snapshot.before;
	while ((record = ring_snapshot_next(&snapshot, record)))
		check_record(&got, record);
	EXPECT_EQUAL(got.records, snapshot.count);
	memset(snapshot.bytes, 0, snapshot.size);
	ring_snapshot_free(&snapshot);
}

/* --- scenarios ---------------------------------------------------------------- */

static void run(const struct scenario *scenario)
{
	struct search_result result = { 0 };
	double before = now();

	search(scenario, &result);
	printf("%-40s %9llu states, %.3g interleavings, %.1f s\n", scenario->name,
	       (unsigned long long)result.states, result.interleavings, now() - before);
	CHECK(!result.failed);
	/* A lower number means that nothing ran in parallel. */
	CHECK(result.interleavings > 1000);
}

#define SCENARIO(what, ...)                                                                        \
	run(&(struct scenario){ .name = what, .state = &at, .state_size = sizeof(at), __VA_ARGS__ })

static void attach(int reader)
{
	at.readers[reader].holds = at.ring->mode == RING_MODE_CONSUMER;
	if (ring_attach(&at.readers[reader].ring, ring_memory_fd(at.ring)))
		search_fail(__FILE__, __LINE__, "cannot attach");
}

static void read_one_by_one(int reader, int records)
{
	for (int i = 0; i < records; i++)
		read_up_to(&at.readers[reader], 1);
}

static void read_two(void)
{
	read_one_by_one(0, 2);
}

static void read_three(void)
{
	read_one_by_one(0, 3);
}

static void write_one(void)
{
	write_record(0);
}

static void write_two(void)
{
	for (int i = 0; i < 2; i++)
		write_record(0);
}

/* Nested records: published while one is open, discarded below another one, and as the newest. */
static void write_nested(void)
{
	struct payload *outer;

	at.gaps = true;
	outer = reserve(RECORD_THREAD, 0);
	finish(reserve(RECORD_THREAD, 1), false);
	ring_publish(at.ring);
	finish(outer, true);
	write_record(0);
	finish(reserve(RECORD_THREAD, 0), true);
}

static void consumer_ring(void)
{
	struct ring_options options = { .size = RING_SIZE, .batch = 8 };

	if (ring_create_with(&at.ring, &options))
		search_fail(__FILE__, __LINE__, "no ring");
	at.readers[0].ring = at.ring;
	at.readers[0].holds = true;
}

TEST(ring_interleavings, nested_records_and_a_handler)
{
	SCENARIO("nested", .setup = consumer_ring, .threads = { write_nested, read_three },
		 .killed = check_killed, .end = check_end);
	SCENARIO("nested, handler publishes", .setup = consumer_ring,
		 .threads = { write_nested, read_three }, .handler = handler_publishes,
		 .signals = 1, .killed = check_killed, .end = check_end);
	SCENARIO("nested, handler writes", .setup = consumer_ring,
		 .threads = { write_nested, read_three }, .handler = handler_writes, .signals = 1,
		 .killed = check_killed, .end = check_end);
	SCENARIO("nested, handler discards", .setup = consumer_ring,
		 .threads = { write_nested, read_three }, .handler = handler_discards_below,
		 .signals = 1, .killed = check_killed, .end = check_end);
}

/* Room for one record, and for all but eight bytes of another one. */
static void nearly_full_ring(void)
{
	consumer_ring();
	for (int i = 0; i < 2; i++)
		write_record(0);
	fill_up_to(RING_SIZE - SMALL_SIZE - 24);
}

static void write_past_the_end(void)
{
	for (int i = 0; i < 3; i++)
		write_record(0);
	ring_flush(at.ring);
}

TEST(ring_interleavings, full_ring_drops_records_and_reports_them)
{
	SCENARIO("full", .setup = nearly_full_ring, .threads = { write_past_the_end, read_two },
		 .killed = check_killed, .end = check_end);
	SCENARIO("full, handler writes", .setup = nearly_full_ring,
		 .threads = { write_past_the_end, read_two }, .handler = handler_writes,
		 .signals = 1, .killed = check_killed, .end = check_end);
}

TEST(ring_interleavings, stores_are_buffered)
{
	SCENARIO("nested, store buffers", .setup = consumer_ring,
		 .threads = { write_nested, read_two }, .store_buffers = 24, .end = check_end);
	SCENARIO("full, store buffers", .setup = nearly_full_ring,
		 .threads = { write_past_the_end, read_two }, .store_buffers = 24,
		 .end = check_end);
}

static void recorder(size_t batch)
{
	struct ring_options options = { .size = RING_SIZE,
					.batch = batch,
					.mode = RING_MODE_OVERWRITE };

	if (ring_create_with(&at.ring, &options))
		search_fail(__FILE__, __LINE__, "no ring");
	attach(0);
}

/* The next record is the first of the second half. */
static void recorder_before_a_mark(void)
{
	recorder(8);
	fill_up_to(RING_SIZE / 2);
	read_up_to(&at.readers[0], 1000);
}

/* The next record is the first of the second half if the one before it is finished by then. */
static void recorder_just_before_a_mark(void)
{
	recorder(8);
	fill_up_to(RING_SIZE / 2 - SMALL_SIZE);
	read_up_to(&at.readers[0], 1000);
}

static void write_two_nested(void)
{
	struct payload *outer;

	at.gaps = true;
	outer = reserve(RECORD_THREAD, 0);
	write_record(0);
	finish(outer, false);
	write_record(0);
}

TEST(ring_interleavings, overwriting_sets_a_mark)
{
	SCENARIO("overwrite: mark", .setup = recorder_before_a_mark,
		 .threads = { write_two, read_two }, .killed = check_killed,
		 .end = check_end_and_after);
	SCENARIO("overwrite: mark, open record", .setup = recorder_just_before_a_mark,
		 .threads = { write_two_nested, read_two }, .killed = check_killed,
		 .end = check_end_and_after);
	SCENARIO("overwrite: mark, handler publishes", .setup = recorder_before_a_mark,
		 .threads = { write_two, read_two }, .handler = handler_publishes, .signals = 1,
		 .killed = check_killed, .end = check_end_and_after);
	SCENARIO("overwrite: mark, handler writes", .setup = recorder_before_a_mark,
		 .threads = { write_two, read_two }, .handler = handler_writes, .signals = 1,
		 .killed = check_killed, .end = check_end_and_after);
}

/* Nothing fits before the tail has moved; there are small records at the tail. */
static void fill_recorder(void)
{
	for (int i = 0; i < 3; i++)
		write_record(0);
	fill_up_to(RING_SIZE);
}

static void full_recorder(void)
{
	recorder(8);
	fill_recorder();
}

/* Records become visible only when the tail moves. */
static void full_recorder_that_does_not_publish(void)
{
	recorder(1 << 20);
	fill_recorder();
}

static void attach_and_read(void)
{
	attach(0);
	read_one_by_one(0, 3);
}

TEST(ring_interleavings, overwriting_overruns_readers)
{
	SCENARIO("overwrite: tail moves", .setup = full_recorder,
		 .threads = { write_two, read_three }, .killed = check_killed,
		 .end = check_end_and_after);
	SCENARIO("overwrite: tail moves, unpublished", .setup = full_recorder_that_does_not_publish,
		 .threads = { write_two, read_three }, .end = check_end_and_after);
	SCENARIO("overwrite: tail moves, attaching", .setup = full_recorder,
		 .threads = { write_two, attach_and_read }, .end = check_end_and_after);
	SCENARIO("overwrite: tail moves, handler writes", .setup = full_recorder,
		 .threads = { write_two, read_three }, .handler = handler_writes, .signals = 1,
		 .killed = check_killed, .end = check_end_and_after);
}

static void read_one(void)
{
	read_one_by_one(0, 1);
}

TEST(ring_interleavings, a_snapshot_is_of_one_moment)
{
	SCENARIO("snapshot", .setup = consumer_ring,
		 .threads = { write_two, take_snapshot, read_two }, .end = check_end);
	SCENARIO("snapshot, full", .setup = nearly_full_ring,
		 .threads = { write_two, take_snapshot, read_one }, .end = check_end);
	SCENARIO("overwrite: snapshot", .setup = full_recorder,
		 .threads = { write_two, take_snapshot }, .end = check_end);
}

/*
 * Four records fill the ring: the next one moves the tail from the mark after the second to the one
 * after the fourth.
 */
static void recorder_at_its_second_mark(void)
{
	recorder(8);
	fill_up_to(RING_SIZE * 3 / 2);
}

static void check_statistics(void)
{
	struct ring_statistics statistics;
	uint64_t overwritten;

	ring_statistics(at.readers[0].ring, &statistics);
	overwritten = statistics.written - statistics.unread;
	EXPECT(overwritten == 2 || overwritten == 4);
}

TEST(ring_interleavings, statistics_at_any_time)
{
	SCENARIO("overwrite: statistics", .setup = recorder_at_its_second_mark,
		 .threads = { write_two, check_statistics }, .end = check_end_and_after);
}

/* --- several consumers ------------------------------------------------------ */

/* Nothing fits before the tail has moved; there are small records at the tail. */
static void full_ring(void)
{
	consumer_ring();
	for (int i = 0; i < 3; i++)
		write_record(0);
	fill_up_to(RING_SIZE);
}

/* The same, and a second reader holds the tail at the first record. */
static void full_ring_with_two_holders(void)
{
	full_ring();
	attach(1);
	read_up_to(&at.readers[0], 3);
}

static void full_ring_with_one_to_be_overrun(void)
{
	full_ring();
	attach_stranger(&at.readers[1]);
}

/* The creator may read what it writes: the tail moves, and there is room at once. */
static void read_and_write(void)
{
	read_one_by_one(0, 2);
	write_two();
}

static void read_write_and_flush(void)
{
	read_and_write();
	ring_flush(at.ring);
}

static uint64_t statistics_before(const struct ring *ring)
{
	struct ring_statistics statistics;

	ring_statistics(ring, &statistics);
	return statistics.before;
}

static void attach_a_holder(void)
{
	attach(1);
	if (at.readers[1].ring)
		at.readers[1].before = statistics_before(at.readers[1].ring);
}

static void attach_a_holder_and_read(void)
{
	attach_a_holder();
	read_one_by_one(1, 1);
}

static void attach_a_holder_and_leave(void)
{
	attach_a_holder();
	ring_destroy(at.readers[1].ring);
	at.readers[1].ring = NULL;
}

/* Two readers attach; the writer leaves each of them everything that it is to read. */
static void attach_a_third_holder(void)
{
	attach(2);
	if (at.readers[2].ring)
		at.readers[2].before = statistics_before(at.readers[2].ring);
}

static void second_reads_two(void)
{
	read_one_by_one(1, 2);
}

static void second_leaves(void)
{
	read_one_by_one(1, 1);
	ring_destroy(at.readers[1].ring);
	at.readers[1].ring = NULL;
}

/* A reader that has exited does not block the writer. */
static void check_end_and_room(void)
{
	check_end();
	for (int i = 0; i < 6; i++) {
		write_record((RING_SIZE / 4 - SMALL_SIZE) / 8);
		check_end();
	}
	EXPECT(at.readers[0].lost < 6);
}

TEST(ring_interleavings, the_slowest_holder_counts)
{
	SCENARIO("two holders", .setup = full_ring_with_two_holders,
		 .threads = { write_two, read_one, second_reads_two }, .end = check_end);
	SCENARIO("two holders, store buffers", .setup = full_ring_with_two_holders,
		 .threads = { write_two, second_reads_two }, .store_buffers = 24, .end = check_end);
	SCENARIO("two holders, one leaves", .setup = full_ring_with_two_holders,
		 .threads = { write_two, second_leaves }, .end = check_end_and_room);
}

TEST(ring_interleavings, a_holder_attaches)
{
	SCENARIO("attaching holder", .setup = full_ring,
		 .threads = { read_and_write, attach_a_holder_and_read },
		 .end = check_end_and_room);
	SCENARIO("attaching holder, another one reads", .setup = full_ring,
		 .threads = { write_one, attach_a_holder, read_two }, .end = check_end_and_room);
	SCENARIO("two attaching holders", .setup = full_ring,
		 .threads = { read_and_write, attach_a_holder, attach_a_third_holder },
		 .end = check_end_and_room);
	SCENARIO("attaching and leaving holder", .setup = full_ring,
		 .threads = { read_and_write, attach_a_holder_and_leave },
		 .end = check_end_and_room);
	SCENARIO("attaching holder, handler writes", .setup = full_ring,
		 .threads = { read_and_write, attach_a_holder_and_read }, .handler = handler_writes,
		 .signals = 1, .end = check_end_and_room);
}

TEST(ring_interleavings, a_holder_attaches_with_store_buffers)
{
	SCENARIO("attaching holder, store buffers", .setup = full_ring,
		 .threads = { read_and_write, attach_a_holder_and_read }, .store_buffers = 24,
		 .end = check_end_and_room);
}

TEST(ring_interleavings, a_reader_that_does_not_hold_the_tail_is_overrun)
{
	SCENARIO("overrun", .setup = full_ring_with_one_to_be_overrun,
		 .threads = { read_and_write, second_reads_two }, .end = check_end);
	SCENARIO("overrun, handler writes", .setup = full_ring_with_one_to_be_overrun,
		 .threads = { read_and_write, second_reads_two }, .handler = handler_writes,
		 .signals = 1, .end = check_end);
	SCENARIO("overrun, store buffers", .setup = full_ring_with_one_to_be_overrun,
		 .threads = { read_and_write, second_reads_two }, .store_buffers = 24,
		 .end = check_end);
}

/* Its slot is free, there is room, and the next reader finds a position to begin at. */
static void check_without_the_dead(void)
{
	at.readers[1].ring = NULL;
	/* One more loss, and the following flush searches for dead holders. */
	write_record(0);
	check_end_and_room();
	ring_destroy(at.readers[0].ring);
	/* The previous loss was reported already. */
	at.gaps = true;
	attach_a_holder();
	write_record(0);
	ring_publish(at.ring);
	read_up_to(&at.readers[1], 1);
}

/* The creator's reader dies too, and both their slots are reclaimed at once. */
static void check_with_all_dead(void)
{
	world_died(-1);
	at.readers[0].ring = NULL;
	at.gaps = true;
	attach_a_holder();
	check_end();
}

TEST(ring_interleavings, a_holder_dies_at_any_step)
{
	SCENARIO("dying holder", .setup = full_ring,
		 .threads = { read_write_and_flush, attach_a_holder_and_leave }, .mortal = 1,
		 .end = check_without_the_dead);
	SCENARIO("dying holders", .setup = full_ring,
		 .threads = { read_and_write, attach_a_holder_and_leave }, .mortal = 1,
		 .end = check_with_all_dead);
}

TEST(ring_interleavings, handlers_interrupt_handlers)
{
	SCENARIO("nested, two signals", .setup = consumer_ring, .threads = { write_nested },
		 .handler = handler_discards_below, .signals = 2, .killed = check_killed,
		 .end = check_end);
	SCENARIO("full, two signals", .setup = nearly_full_ring, .threads = { write_two, read_one },
		 .handler = handler_writes, .signals = 2, .killed = check_killed, .end = check_end);
	SCENARIO("overwrite: mark, two signals", .setup = recorder_before_a_mark,
		 .threads = { write_one, read_two }, .handler = handler_writes, .signals = 2,
		 .killed = check_killed, .end = check_end_and_after);
	SCENARIO("overwrite: tail moves, two signals", .setup = full_recorder,
		 .threads = { write_one, read_one }, .handler = handler_writes, .signals = 2,
		 .killed = check_killed, .end = check_end_and_after);
}
