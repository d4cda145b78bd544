/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several readers of one ring in consumer mode: which one holds the tail, which is overrun and by
 * how much, and the state that a killed one leaves. Record number N has N records before it, so
 * that every reader can check each record.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "shared/error.h"
#include "shared/ring_layout.h"
#include "tests/unit/ring_records.h"

static const struct ring_reader_options holds = { .overrun = false };
static const struct ring_reader_options overrun = { .overrun = true };
static const struct ring_reader_options newest = { .newest = true };

/* Its maker only writes. */
static struct ring *new_ring(void)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .batch = 8, .reader.overrun = true };
	struct ring *ring = NULL;

	if (ring_create_with(&ring, &options))
		abort();
	return ring;
}

static struct ring *attach(struct ring *ring, const struct ring_reader_options *options)
{
	struct ring *reader = NULL;

	if (ring_attach_with(&reader, ring_memory_fd(ring), options)) {
		fprintf(stderr, "%s\n", error_message());
		abort();
	}
	return reader;
}

/* Writes record NEXT and those that follow, COUNT of them or as many as there is room for. */
static uint64_t write_some(struct ring *ring, uint64_t *next, uint64_t count)
{
	uint64_t written = 0;

	while (written < count && produce(ring, RECORD_THREAD, *next, *next % 29, false)) {
		++*next;
		written++;
	}
	return written;
}

/* What a reader came across; EXPECTED is the number of the next record. */
struct reading {
	uint64_t expected;
	uint64_t records;
	uint64_t overrun;
	uint64_t lost;
};

static struct reading begin_reading(struct ring *reader)
{
	struct ring_statistics statistics;

	ring_statistics(reader, &statistics);
	return (struct reading){ .expected = statistics.before };
}

static bool take(struct reading *reading, const struct ring_record *record)
{
	const struct payload *payload = (const struct payload *)record->payload;
	uint64_t count = ((const struct ring_lost *)record->payload)->count;

	if (record->type == RING_RECORD_LOST) {
		reading->lost += count;
	} else if (record->type == RING_RECORD_OVERRUN) {
		reading->overrun += count;
		reading->expected += count;
	} else if (payload_is_good(record) && payload->number == reading->expected) {
		reading->records++;
		reading->expected++;
	} else {
		return false;
	}
	return true;
}

/* Reads at most COUNT records, and gives them back. */
static void read_some(struct ring *reader, struct reading *reading, uint64_t count)
{
	const struct ring_record *record;
	uint64_t bad = 0;

	while (count-- && (record = ring_read(reader)))
		bad += !take(reading, record);
	CHECK_EQUAL(bad, 0);
	ring_read_done(reader);
}

static void check_sum_of(struct ring *reader, const struct reading *reading)
{
	struct ring_statistics statistics;

	ring_statistics(reader, &statistics);
	CHECK_EQUAL(statistics.broken, 0);
	CHECK_EQUAL(statistics.overrun, reading->overrun);
	CHECK_EQUAL(statistics.before + reading->records + reading->overrun + statistics.unread,
		    statistics.written);
}

static uint64_t fill_up(struct ring *ring, uint64_t *next)
{
	return write_some(ring, next, UINT64_MAX);
}

TEST(ring_readers, the_slowest_holder_limits_the_writer)
{
	struct ring *ring = new_ring(), *fast = attach(ring, &holds), *slow = attach(ring, &holds);
	struct reading by_fast = begin_reading(fast), by_slow = begin_reading(slow);
	uint64_t next = 0, room;

	CHECK(fill_up(ring, &next) > 100);
	read_some(fast, &by_fast, UINT64_MAX);
	CHECK_EQUAL(by_fast.records, next);
	CHECK_EQUAL(fill_up(ring, &next), 0);
	read_some(slow, &by_slow, 50);
	room = fill_up(ring, &next);
	CHECK(room >= 40 && room <= 60);
	read_some(slow, &by_slow, UINT64_MAX);
	read_some(fast, &by_fast, UINT64_MAX);
	CHECK_EQUAL(by_slow.expected, next);
	CHECK_EQUAL(by_fast.expected, next);
	check_sum_of(slow, &by_slow);
	check_sum_of(fast, &by_fast);
	ring_destroy(slow);
	ring_destroy(fast);
	ring_destroy(ring);
}

TEST(ring_readers, an_overrun_reader_gets_the_number_of_lost_records)
{
	struct ring *ring = new_ring(), *holder = attach(ring, &holds),
		    *reader = attach(ring, &overrun);
	struct reading by_holder = begin_reading(holder), by_reader = begin_reading(reader);
	struct ring_statistics statistics;
	uint64_t next = 0;

	write_some(ring, &next, 10);
	read_some(reader, &by_reader, UINT64_MAX);
	CHECK_EQUAL(by_reader.records, 10);
	for (int round = 0; round < 7; round++) {
		fill_up(ring, &next);
		read_some(holder, &by_holder, UINT64_MAX);
	}
	CHECK_EQUAL(by_holder.expected, next);
	ring_statistics(reader, &statistics);
	CHECK_EQUAL(statistics.overrun, next - 10);
	CHECK_EQUAL(statistics.unread, 0);
	read_some(reader, &by_reader, UINT64_MAX);
	CHECK(by_reader.overrun > 1000);
	CHECK_EQUAL(by_reader.expected, next);
	check_sum_of(reader, &by_reader);
	ring_destroy(reader);
	ring_destroy(holder);
	ring_destroy(ring);
}

TEST(ring_readers, what_is_given_back_can_be_read_until_it_is_overwritten)
{
	struct ring *ring = new_ring(), *holder = attach(ring, &holds),
		    *reader = attach(ring, &overrun);
	struct reading by_holder = begin_reading(holder), by_reader = begin_reading(reader);
	struct ring_snapshot snapshot;
	uint64_t next = 0;

	write_some(ring, &next, 10);
	read_some(holder, &by_holder, 5);
	CHECK_EQUAL(ring_snapshot(ring, &snapshot), 0);
	CHECK_EQUAL(snapshot.before, 5);
	CHECK_EQUAL(snapshot.count, 5);
	read_some(reader, &by_reader, UINT64_MAX);
	CHECK_EQUAL(by_reader.records, 10);
	ring_snapshot_free(&snapshot);
	ring_destroy(reader);
	ring_destroy(holder);
	ring_destroy(ring);
}

TEST(ring_readers, may_begin_with_the_oldest_or_the_newest)
{
	struct ring *ring = new_ring(), *first = attach(ring, &holds), *old, *new;
	struct reading by_first = begin_reading(first), by_old, by_new;
	uint64_t next = 0;

	write_some(ring, &next, 10);
	read_some(first, &by_first, 4);
	old = attach(ring, &holds);
	new = attach(ring, &newest);
	by_old = begin_reading(old);
	by_new = begin_reading(new);
	CHECK_EQUAL(by_old.expected, 4);
	CHECK_EQUAL(by_new.expected, 10);
	write_some(ring, &next, 5);
	read_some(old, &by_old, UINT64_MAX);
	read_some(new, &by_new, UINT64_MAX);
	CHECK_EQUAL(by_old.records, 11);
	CHECK_EQUAL(by_new.records, 5);
	check_sum_of(old, &by_old);
	check_sum_of(new, &by_new);
	ring_destroy(old);
	ring_destroy(new);
	ring_destroy(first);
	ring_destroy(ring);
}

TEST(ring_readers, the_newest_in_overwrite_mode_has_lost_nothing)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .mode = RING_MODE_OVERWRITE };
	struct ring *ring, *reader;
	struct reading reading;
	uint64_t next = 0;

	REQUIRE_EQUAL(ring_create_with(&ring, &options), 0);
	write_some(ring, &next, 5000);
	reader = attach(ring, &newest);
	reading = begin_reading(reader);
	CHECK_EQUAL(reading.expected, next);
	write_some(ring, &next, 7);
	read_some(reader, &reading, UINT64_MAX);
	CHECK_EQUAL(reading.records, 7);
	CHECK_EQUAL(reading.overrun, 0);
	check_sum_of(reader, &reading);
	ring_destroy(reader);
	ring_destroy(ring);
}

TEST(ring_readers, the_next_holder_goes_on_where_the_last_one_stood)
{
	struct ring *ring = new_ring(), *reader = attach(ring, &holds);
	struct reading reading = begin_reading(reader);
	uint64_t next = 0;

	write_some(ring, &next, 10);
	read_some(reader, &reading, 6);
	ring_destroy(reader);
	fill_up(ring, &next);
	CHECK(next < RING_SIZE_MIN / 32);
	reader = attach(ring, &holds);
	reading = begin_reading(reader);
	CHECK_EQUAL(reading.expected, 6);
	read_some(reader, &reading, UINT64_MAX);
	CHECK_EQUAL(reading.expected, next);
	CHECK(fill_up(ring, &next) > 100);
	ring_destroy(reader);
	ring_destroy(ring);
}

TEST(ring_readers, one_that_detaches_holds_nothing)
{
	struct ring *ring = new_ring(), *fast = attach(ring, &holds), *slow = attach(ring, &holds);
	struct reading reading = begin_reading(fast);
	uint64_t next = 0;

	fill_up(ring, &next);
	read_some(fast, &reading, UINT64_MAX);
	CHECK_EQUAL(fill_up(ring, &next), 0);
	ring_destroy(slow);
	CHECK(fill_up(ring, &next) > 100);
	read_some(fast, &reading, UINT64_MAX);
	check_sum_of(fast, &reading);
	ring_destroy(fast);
	ring_destroy(ring);
}

TEST(ring_readers, sixteen_hold_and_no_more)
{
	struct ring *ring = new_ring(), *holders[RING_CONSUMERS], *one_more;

	for (int i = 0; i < RING_CONSUMERS; i++)
		holders[i] = attach(ring, &holds);
	CHECK_EQUAL(ring_attach(&one_more, ring_memory_fd(ring)), -16);
	CHECK(strstr(error_message(), "may be overrun"));
	ring_destroy(attach(ring, &overrun));
	ring_destroy(holders[7]);
	holders[7] = attach(ring, &holds);
	for (int i = 0; i < RING_CONSUMERS; i++)
		ring_destroy(holders[i]);
	ring_destroy(ring);
}

TEST(ring_readers, one_that_holds_nothing_needs_no_right_to_write)
{
	struct ring *ring = new_ring(), *reader = NULL;
	struct reading reading;
	uint64_t next = 0;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", ring_memory_fd(ring));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	REQUIRE(fd >= 0);
	REQUIRE_EQUAL(ring_attach_with(&reader, fd, &overrun), 0);
	close(fd);
	CHECK_EQUAL(mprotect(reader->header, RING_DATA_OFFSET, PROT_READ | PROT_WRITE), -1);
	write_some(ring, &next, 10);
	reading = begin_reading(reader);
	read_some(reader, &reading, UINT64_MAX);
	CHECK_EQUAL(reading.records, 10);
	ring_destroy(reader);
	ring_destroy(ring);
}

/* A process that holds the tail, having read COUNT records. */
static pid_t start_holder(struct ring *ring, uint64_t count)
{
	int ready[2];
	char byte = 0;
	pid_t child;

	if (pipe(ready))
		abort();
	child = fork();
	if (!child) {
		struct ring *reader = attach(ring, &holds);
		struct reading reading = begin_reading(reader);

		read_some(reader, &reading, count);
		if (write(ready[1], &byte, 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		abort();
	close(ready[0]);
	return child;
}

static void end_holder(pid_t holder)
{
	kill(holder, SIGKILL);
	CHECK_EQUAL(waitpid(holder, NULL, 0), holder);
}

TEST(ring_readers, the_writer_takes_the_tail_from_killed_readers_only)
{
	struct ring *ring = new_ring();
	uint64_t next = 0;
	pid_t holder, other;

	holder = start_holder(ring, 0);
	other = start_holder(ring, 0);
	fill_up(ring, &next);
	end_holder(holder);
	ring_flush(ring);
	CHECK_EQUAL(ring->header->holders, 2);
	CHECK_EQUAL(fill_up(ring, &next), 0);
	end_holder(other);
	ring_flush(ring);
	CHECK_EQUAL(ring->header->holders, 0);
	ring_destroy(ring);
}

TEST(ring_readers, losses_make_a_flush_due_that_finds_killed_readers)
{
	struct ring *ring = new_ring(), *reader = attach(ring, &holds);
	struct reading reading = begin_reading(reader);
	pid_t holder = start_holder(ring, 0);
	uint64_t next = 0;
	int dropped = 0;

	fill_up(ring, &next);
	ring_flush(ring);
	read_some(reader, &reading, UINT64_MAX);
	end_holder(holder);
	while (!ring_wake_due(ring, 1) && dropped < 1000)
		dropped += !fill_up(ring, &next);
	CHECK(dropped > 10 && dropped < 200);
	ring_flush(ring);
	CHECK(fill_up(ring, &next) > 100);
	read_some(reader, &reading, UINT64_MAX);
	CHECK_EQUAL(reading.expected, next);
	ring_destroy(reader);
	ring_destroy(ring);
}

TEST(ring_readers, a_new_reader_continues_after_a_killed_one)
{
	struct ring *ring = new_ring(), *reader;
	struct reading reading;
	uint64_t next = 0;

	write_some(ring, &next, 20);
	end_holder(start_holder(ring, 5));
	reader = attach(ring, &holds);
	reading = begin_reading(reader);
	CHECK_EQUAL(reading.expected, 5);
	CHECK_EQUAL(__builtin_popcountll(ring->header->holders), 1);
	read_some(reader, &reading, UINT64_MAX);
	CHECK_EQUAL(reading.records, 15);
	ring_destroy(reader);
	ring_destroy(ring);
}

/*
 * The writer expects the tail of the faster reader. The slower one attached just after the writer
 * read it, and is waited for.
 */
TEST(ring_readers, may_come_where_a_slower_one_is_waited_for)
{
	struct ring *ring = new_ring(), *fast = attach(ring, &holds), *slow, *reader;
	struct reading reading = begin_reading(fast);
	uint64_t next = 0, wanted;

	write_some(ring, &next, 20);
	ring_flush(ring);
	slow = attach(ring, &holds);
	read_some(fast, &reading, 10);
	ring_read_done(fast);
	wanted = fast->reader.released;
	CHECK(wanted > 0);
	ring->header->wanted_floor = wanted;

	reader = attach(ring, &holds);
	CHECK_EQUAL(reader->reader.position, wanted);
	reading = begin_reading(reader);
	CHECK_EQUAL(reading.expected, 10);
	read_some(reader, &reading, UINT64_MAX);
	CHECK_EQUAL(reading.expected, next);
	reading = begin_reading(slow);
	read_some(slow, &reading, UINT64_MAX);
	CHECK_EQUAL(reading.records, 20);
	ring_destroy(reader);
	ring_destroy(slow);
	ring_destroy(fast);
	ring_destroy(ring);
}

/* Readers come and go while the writer writes. */
static struct {
	struct ring *ring;
	bool writer_done;
	uint64_t next;
} crowd;

static void *write_to_crowd(void *unused)
{
	double end = now() + 1;

	(void)unused;
	while (now() < end) {
		write_some(crowd.ring, &crowd.next, 1000);
		ring_flush(crowd.ring);
	}
	__atomic_store_n(&crowd.writer_done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void visit(const struct ring_reader_options *options, unsigned int *seed)
{
	struct ring *reader = attach(crowd.ring, options);
	struct reading reading = begin_reading(reader);

	for (int i = rand_r(seed) % 20; i >= 0; i--)
		read_some(reader, &reading, rand_r(seed) % 3000);
	CHECK(!options->overrun ? !reading.overrun : true);
	ring_destroy(reader);
}

static void *come_and_go(void *number)
{
	unsigned int seed = (unsigned int)(uintptr_t)number;

	while (!__atomic_load_n(&crowd.writer_done, __ATOMIC_ACQUIRE)) {
		struct ring_reader_options options = { .overrun = rand_r(&seed) % 2,
						       .newest = rand_r(&seed) % 2 };

		visit(&options, &seed);
	}
	return NULL;
}

static void *stay(void *reader)
{
	struct reading reading = begin_reading(reader);
	bool done;

	do {
		done = __atomic_load_n(&crowd.writer_done, __ATOMIC_ACQUIRE);
		read_some(reader, &reading, UINT64_MAX);
	} while (!done);
	CHECK_EQUAL(reading.expected, crowd.next);
	CHECK(reading.records);
	check_sum_of(reader, &reading);
	return NULL;
}

TEST(ring_readers, may_come_and_go_while_the_writer_writes)
{
	struct ring *holder, *reader;
	pthread_t threads[5];

	memset(&crowd, 0, sizeof(crowd));
	crowd.ring = new_ring();
	holder = attach(crowd.ring, &holds);
	reader = attach(crowd.ring, &overrun);
	pthread_create(&threads[0], NULL, stay, holder);
	pthread_create(&threads[1], NULL, stay, reader);
	pthread_create(&threads[2], NULL, come_and_go, (void *)1);
	pthread_create(&threads[3], NULL, come_and_go, (void *)2);
	pthread_create(&threads[4], NULL, write_to_crowd, NULL);
	for (int i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	ring_destroy(holder);
	ring_destroy(reader);
	CHECK_EQUAL(crowd.ring->header->holders, 0);
	ring_destroy(crowd.ring);
}
