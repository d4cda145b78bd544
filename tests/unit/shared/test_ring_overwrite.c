/* SPDX-License-Identifier: Apache-2.0 */
/* Overwrite mode: whoever reads, whenever, finds whole records, and knows exactly how many it
 * missed. */
#include <stdlib.h>
#include <ucontext.h>

#include "shared/local_atomic.h"
#include "tests/unit/ring_records.h"

static struct ring *new_recorder(void)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .mode = RING_MODE_OVERWRITE };
	struct ring *ring = NULL;

	if (ring_create_with(&ring, &options))
		abort();
	return ring;
}

static struct ring *attach(struct ring *ring)
{
	struct ring *reader = NULL;

	if (ring_attach(&reader, ring_memory_fd(ring)))
		abort();
	return reader;
}

/* Counts records; OVERRUN records must agree with the reader's statistics. */
static uint64_t tally_all(struct ring *reader, struct tally *tally)
{
	const struct ring_record *record;
	uint64_t overrun = 0;

	while ((record = ring_read(reader))) {
		if (record->type == RING_RECORD_OVERRUN)
			overrun += ((const struct ring_lost *)record->payload)->count;
		else
			count_record(tally, record);
	}
	return overrun;
}

static void check_reader(struct ring *reader, const struct tally *tally, uint64_t overrun)
{
	struct ring_statistics statistics;

	ring_statistics(reader, &statistics);
	CHECK_EQUAL(tally->bad, 0);
	CHECK_EQUAL(statistics.broken, 0);
	CHECK_EQUAL(statistics.unread, 0);
	CHECK_EQUAL(statistics.overrun, overrun);
	CHECK_EQUAL(tally->records + overrun, statistics.written);
}

TEST(ring_overwrite, keeps_the_newest_half_at_any_moment)
{
	struct ring *ring = new_recorder();
	uint64_t bytes = 0;

	for (uint64_t number = 0; number < 20000; number++) {
		REQUIRE(produce(ring, RECORD_THREAD, number, number % 37, false));
		bytes += 8 + 24 + 8 * (number % 37);
		if (number % 61 == 0) {
			struct ring *reader = attach(ring);
			struct tally tally = { .next = { 0 } };
			uint64_t overrun = tally_all(reader, &tally);

			check_reader(reader, &tally, overrun);
			CHECK_EQUAL(tally.next[0], number + 1);
			CHECK(tally.records >=
			      (bytes < RING_SIZE_MIN ? 1 : RING_SIZE_MIN / 2 / 328 - 2));
			if (bytes < RING_SIZE_MIN / 2)
				CHECK_EQUAL(tally.records, number + 1);
			ring_destroy(reader);
		}
	}
	ring_destroy(ring);
}

TEST(ring_overwrite, the_largest_records_follow_each_other)
{
	struct ring *ring = new_recorder();
	size_t words = (ring_payload_max(ring) - sizeof(struct payload)) / 8;
	struct tally tally = { .records = 0 };
	uint64_t overrun = 0;

	for (uint64_t number = 0; number < 200; number++) {
		REQUIRE(produce(ring, RECORD_THREAD, number, words, false));
		REQUIRE(produce(ring, RECORD_HANDLER, number, number % 3, number % 5 == 0));
		if (number % 7 == 0)
			overrun += tally_all(ring, &tally);
	}
	overrun += tally_all(ring, &tally);
	check_reader(ring, &tally, overrun);
	CHECK(overrun > 0);
	ring_destroy(ring);
}

TEST(ring_overwrite, an_open_record_is_never_overwritten)
{
	struct ring *ring = new_recorder();
	struct payload *outer = ring_reserve(ring, RECORD_THREAD, sizeof(*outer));
	struct tally tally = { .records = 0 };
	struct ring_statistics statistics;
	uint64_t dropped = 0;

	REQUIRE(outer);
	for (uint64_t number = 0; number < 10000; number++)
		dropped += !produce(ring, RECORD_HANDLER, number, 10, false);
	ring_statistics(ring, &statistics);
	CHECK_EQUAL(statistics.open, 1);
	CHECK_EQUAL(statistics.lost, dropped);
	CHECK(dropped > 0);
	fill_payload(outer, 1, 0);
	ring_commit(ring, outer);
	for (uint64_t number = 10000; number < 20000; number++)
		CHECK(produce(ring, RECORD_HANDLER, number, 10, false));
	check_reader(ring, &tally, tally_all(ring, &tally));
	ring_destroy(ring);
}

#ifdef __x86_64__

/* One side is stopped at its STOPth instruction, and the other does all that it does. */
static struct {
	struct ring *ring, *reader;
	struct tally tally;
	uint64_t overrun;
	uint64_t instruction, stop;
	uint64_t number, handler_number;
	int interference;
} step;

enum {
	READ_ALL,
	ATTACH_AND_READ,
	WRITE_ONE,
	DISCARD_ONE,
	WRITE_PAST_HALF,
	WRITE_PAST_ALL,
	INTERFERENCES
};

static void write_bytes(size_t bytes)
{
	for (size_t written = 0; written < bytes; written += 8 + 24 + 8 * 500)
		produce(step.ring, RECORD_HANDLER, step.handler_number++, 500, false);
}

static void read_as_a_stranger(void)
{
	struct ring *reader = attach(step.ring);
	struct tally tally = { .records = 0 };
	struct ring_statistics statistics;
	uint64_t overrun = tally_all(reader, &tally);

	ring_statistics(reader, &statistics);
	CHECK_EQUAL(tally.bad + statistics.broken, 0);
	/* The one that is being committed may be counted and not yet to be seen. */
	CHECK(statistics.written - tally.records - overrun <= 1);
	CHECK(tally.records > 0);
	ring_destroy(reader);
}

static void interfere(void)
{
	switch (step.interference) {
	case READ_ALL:
		step.overrun += tally_all(step.reader, &step.tally);
		break;
	case ATTACH_AND_READ:
		read_as_a_stranger();
		break;
	case WRITE_ONE:
	case DISCARD_ONE:
		produce(step.ring, RECORD_HANDLER, step.handler_number++, 500,
			step.interference == DISCARD_ONE);
		break;
	case WRITE_PAST_HALF:
		write_bytes(RING_SIZE_MIN * 5 / 8);
		break;
	case WRITE_PAST_ALL:
		write_bytes(RING_SIZE_MIN * 9 / 4);
		break;
	}
}

static void on_step(int signal, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;

	(void)signal;
	(void)info;
	if (step.instruction++ < step.stop)
		return;
	interrupted->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
	interfere();
}

static void start_step(uint64_t stop, int interference)
{
	memset(&step, 0, sizeof(step));
	step.stop = stop;
	step.interference = interference;
	step.ring = new_recorder();
	step.reader = attach(step.ring);
}

static bool end_step(void)
{
	step.overrun += tally_all(step.reader, &step.tally);
	check_reader(step.reader, &step.tally, step.overrun);
	read_as_a_stranger();
	ring_destroy(step.reader);
	ring_destroy(step.ring);
	return step.instruction > step.stop;
}

/* Fills up to just before the tail moves, or before a mark is placed; then the interrupted write.
 */
static bool writer_interrupted_at(uint64_t stop, int records, int interference)
{
	void *record;

	start_step(stop, interference);
	for (int i = 0; i < records; i++)
		produce(step.ring, RECORD_THREAD, step.number++, 508, false);
	trap_on();
	record = ring_reserve(step.ring, RECORD_THREAD, sizeof(struct payload) + 8 * 508);
	trap_off();
	if (record)
		fill_payload(record, step.number++, 508);
	if (step.instruction <= step.stop)
		trap_on();
	ring_commit(step.ring, record);
	trap_off();
	produce(step.ring, RECORD_THREAD, step.number++, 3, false);
	return end_step();
}

/* Reads a record, or, with RECORDS beyond the ring's size, the mark at which it finds that it was
 * overrun. */
static bool reader_interrupted_at(uint64_t stop, int records, int interference)
{
	const struct ring_record *record;

	start_step(stop, interference);
	for (int i = 0; i < records; i++)
		produce(step.ring, RECORD_THREAD, step.number++, i, false);
	trap_on();
	record = ring_read(step.reader);
	trap_off();
	if (record && record->type == RING_RECORD_OVERRUN)
		step.overrun += ((const struct ring_lost *)record->payload)->count;
	else if (record)
		count_record(&step.tally, record);
	return end_step();
}

/* Some of the instructions, a ninth at most, and each one where RING_STRESS_SECONDS allows for the
 * time. */
typedef bool interrupted(uint64_t stop, int records, int interference);

static void interrupt_everywhere(interrupted *run, const int *records, size_t count, int first,
				 int last)
{
	struct sigaction action = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO }, before;
	uint64_t stop, stride = getenv("RING_STRESS_SECONDS") ? 1 : RING_STEP_STRIDE * 9;

	sigaction(SIGTRAP, &action, &before);
	for (size_t i = 0; i < count; i++) {
		for (int interference = first; interference <= last; interference++) {
			for (stop = 0; run(stop, records[i], interference); stop += stride)
				;
			CHECK(stop > 10);
		}
	}
	sigaction(SIGTRAP, &before, NULL);
}

TEST(ring_overwrite, writer_is_interrupted_at_every_instruction)
{
	/* 4096 bytes each: the next one places the mark, or moves the tail. */
	static const int records[] = { 8, 15 };

#if !LOCAL_ATOMIC_ASSEMBLY
	SKIP("ThreadSanitizer delays signals, so none comes between two instructions");
#endif
	interrupt_everywhere(writer_interrupted_at, records, 2, READ_ALL, WRITE_PAST_ALL);
}

TEST(ring_overwrite, reader_is_overtaken_at_every_instruction)
{
	static const int records[] = { 3, 200 };

#if !LOCAL_ATOMIC_ASSEMBLY
	SKIP("ThreadSanitizer delays signals, so none comes between two instructions");
#endif
	interrupt_everywhere(reader_interrupted_at, records, 2, WRITE_ONE, WRITE_PAST_ALL);
}

#endif
