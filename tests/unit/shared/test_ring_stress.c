/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring under real threads and signals: a writer that a timer interrupts
 * 20000 times a second, and three readers, for RING_STRESS_SECONDS; and
 * writers that are killed, RING_KILLS of them. Records have 8 bytes to half a
 * ring, of which every byte follows from the record's number, and that is
 * guarded by a checksum.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/unit/ring_records.h"

#define READERS     3
#define SIGNALS     20000 /* a second */
#define NUMBER_BITS 40

static long environment(const char *name, long otherwise)
{
	const char *value = getenv(name);

	return value ? atol(value) : otherwise;
}

/* --- records -------------------------------------------------------------- */

/* Mostly small, as samples are; each power of two up to the largest comes too. */
static size_t words_of(uint64_t number, size_t payload_max)
{
	uint64_t random = mix(number * 2654435761u);
	size_t limit = random % 256 ? 64 : payload_max / 8;

	while (random % 256 == 0 && limit > 1 && random >> 20 & 1) {
		limit /= 2;
		random = mix(random) & ~255ull;
	}
	return 1 + (random >> 32) % limit;
}

/* The number, and a checksum of it and the record's length. */
static uint64_t first_word(uint64_t number, size_t words)
{
	return number | mix(number ^ mix(words)) << NUMBER_BITS;
}

static void fill_words(uint64_t *word, uint64_t number, size_t words)
{
	word[0] = first_word(number, words);
	for (size_t i = 1; i < words; i++)
		word[i] = mix(word[i - 1]);
}

/* The record's number; UINT64_MAX if a byte of it is not as it was written. */
static uint64_t check_words(const struct ring_record *record)
{
	const uint64_t *word = (const uint64_t *)record->payload;
	size_t words = (record->size - sizeof(*record)) / 8;
	uint64_t number;

	if (!words)
		return UINT64_MAX;
	number = word[0] & ((1ull << NUMBER_BITS) - 1);
	if (word[0] != first_word(number, words))
		return UINT64_MAX;
	for (size_t i = 1; i < words; i++)
		if (word[i] != mix(word[i - 1]))
			return UINT64_MAX;
	return number;
}

static void write_one(struct ring *ring, uint16_t type, uint64_t number)
{
	size_t words = words_of(number + type, ring_payload_max(ring));
	uint64_t *payload = ring_reserve(ring, type, 8 * words);

	if (payload)
		fill_words(payload, number, words);
	if (number % 7 == 3)
		ring_discard(ring, payload);
	else
		ring_commit(ring, payload);
}

/* --- a reader --------------------------------------------------------------- */

struct reading {
	struct ring *ring;
	uint64_t records, overrun, lost, bad;
	uint64_t next[2];         /* the lowest number that may come, by type */
	size_t smallest, largest; /* payloads */
};

static void note_size(struct reading *reading, size_t size)
{
	if (size < reading->smallest || !reading->smallest)
		reading->smallest = size;
	if (size > reading->largest)
		reading->largest = size;
}

static void look_at(struct reading *reading, const struct ring_record *record)
{
	uint64_t number, *next;

	if (record->type == RING_RECORD_LOST) {
		reading->lost += ((const struct ring_lost *)record->payload)->count;
	} else if (record->type == RING_RECORD_OVERRUN) {
		reading->overrun += ((const struct ring_lost *)record->payload)->count;
	} else {
		reading->records++;
		note_size(reading, record->size - sizeof(*record));
		number = check_words(record);
		next = &reading->next[record->type == RECORD_HANDLER];
		reading->bad += number == UINT64_MAX || number < *next ||
				(record->type != RECORD_THREAD && record->type != RECORD_HANDLER);
		*next = number + 1;
	}
}

/* False if there was nothing. */
static bool read_what_is_there(struct reading *reading)
{
	const struct ring_record *record;
	bool any = false;

	while ((record = ring_read(reading->ring))) {
		look_at(reading, record);
		any = true;
	}
	ring_read_done(reading->ring);
	return any;
}

/* The read and lost records are the written ones: at any time, exactly if the writer is idle. */
static void check_reading(const struct reading *reading)
{
	struct ring_statistics statistics;

	ring_statistics(reading->ring, &statistics);
	CHECK_EQUAL(reading->bad, 0);
	CHECK_EQUAL(statistics.broken, 0);
	CHECK_EQUAL(statistics.overrun, reading->overrun);
	CHECK_EQUAL(statistics.before + reading->records + reading->overrun + statistics.unread,
		    statistics.written);
}

/* --- stress ----------------------------------------------------------------- */

static struct {
	struct ring *ring;
	bool done;
	double seconds;
	uint64_t by_thread;
	volatile uint64_t by_handler; /* only by the handlers */
	volatile bool handles;        /* one of them runs */
} stress;

/*
 * ThreadSanitizer's runtime may run a signal that it had put off inside the
 * handler of the next, at any atomic operation and any call that it
 * intercepts, though the signal is blocked: that one does nothing, or two
 * would have one number, or the second come first.
 */
static void on_timer(int signal)
{
	(void)signal;
	if (stress.handles)
		return;
	stress.handles = true;
	write_one(stress.ring, RECORD_HANDLER, stress.by_handler);
	stress.by_handler++;
	stress.handles = false;
}

/*
 * A signal that comes while the one before is pending is none, and while the
 * writer waits for a processor all are one: the timer then goes faster, until
 * there have been as many as at SIGNALS a second. Twice as fast at most, or
 * the handler would be all that runs where it is slow.
 */
static void keep_pace(timer_t timer, double seconds)
{
	double missing = SIGNALS * seconds - (double)stress.by_handler;
	double rate = SIGNALS + missing / 0.05;

	rate = rate < SIGNALS / 2.0 ? SIGNALS / 2.0 : rate > 2.0 * SIGNALS ? 2.0 * SIGNALS : rate;
	set_timer(timer, (long)(1e9 / rate));
}

static void *keep_writing(void *unused)
{
	double start = now(), end = start + environment("RING_STRESS_SECONDS", 2), paced = start;
	timer_t timer = start_timer(1000000000 / SIGNALS);
	struct ring_statistics statistics = { .lost = 0 };
	uint64_t number = 0;

	(void)unused;
	do {
		uint64_t lost = statistics.lost;

		for (int i = 0; i < 100; i++)
			write_one(stress.ring, RECORD_THREAD, number++);
		ring_flush(stress.ring);
		ring_statistics(stress.ring, &statistics);
		/* If all were lost or overwritten, there would be nothing to read. */
		if (statistics.lost != lost || number / 100000 % 2)
			usleep(100);
		stress.seconds = now() - start;
		if (start + stress.seconds > paced + 0.002) {
			paced = start + stress.seconds;
			keep_pace(timer, stress.seconds);
		}
	} while (start + stress.seconds < end);
	timer_delete(timer);
	stress.by_thread = number;
	__atomic_store_n(&stress.done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void *keep_reading(void *argument)
{
	struct reading *reading = argument;
	bool done;

	do {
		done = __atomic_load_n(&stress.done, __ATOMIC_ACQUIRE);
		if (!read_what_is_there(reading))
			sched_yield();
	} while (!done);
	return NULL;
}

static void attach(struct reading *reading, int memory_fd, bool may_be_overrun)
{
	struct ring_reader_options options = { .overrun = may_be_overrun };

	*reading = (struct reading){ .records = 0 };
	if (ring_attach_with(&reading->ring, memory_fd, &options))
		abort();
}

static void run_threads(struct reading *readings)
{
	struct sigaction action = { .sa_handler = on_timer, .sa_flags = SA_RESTART }, before;
	pthread_t writer, readers[READERS];

	sigaction(SIGUSR1, &action, &before);
	for (int i = 0; i < READERS; i++)
		pthread_create(&readers[i], NULL, keep_reading, &readings[i]);
	pthread_create(&writer, NULL, keep_writing, NULL);
	pthread_join(writer, NULL);
	for (int i = 0; i < READERS; i++)
		pthread_join(readers[i], NULL);
	sigaction(SIGUSR1, &before, NULL);
}

/* A flush reports losses as soon as there is room for them. */
static void read_the_rest(struct reading *readings)
{
	for (int round = 0; round < 2; round++) {
		ring_flush(stress.ring);
		for (int i = 0; i < READERS; i++)
			read_what_is_there(&readings[i]);
	}
}

static void check_sums(const struct reading *readings, int holders)
{
	struct ring_statistics statistics;

	ring_statistics(stress.ring, &statistics);
	CHECK_EQUAL(statistics.written + statistics.lost + statistics.discarded,
		    stress.by_thread + stress.by_handler);
	CHECK_EQUAL(statistics.open, 0);
	for (int i = 0; i < READERS; i++) {
		check_reading(&readings[i]);
		CHECK(readings[i].records > 0);
		CHECK_EQUAL(readings[i].smallest, 8);
		/* A ring that readers hold may be too full for the large ones. */
		CHECK(holders || readings[i].largest > ring_payload_max(stress.ring) / 2);
		if (i < holders) {
			CHECK_EQUAL(readings[i].records, statistics.written);
			CHECK_EQUAL(readings[i].lost, statistics.lost);
		}
	}
	printf("%llu records, %llu of them by signals, %.0f a second; %llu lost; readers got %llu, %llu, %llu\n",
	       (unsigned long long)stress.by_thread + stress.by_handler,
	       (unsigned long long)stress.by_handler, (double)stress.by_handler / stress.seconds,
	       (unsigned long long)statistics.lost, (unsigned long long)readings[0].records,
	       (unsigned long long)readings[1].records, (unsigned long long)readings[2].records);
}

/*
 * The first HOLDERS of three readers hold the tail. The first of all is the
 * maker's own: ThreadSanitizer goes by addresses, and sees races only of those
 * who use one mapping.
 */
static void run_stress(enum ring_mode mode, int holders)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .mode = mode };
	struct reading readings[READERS] = { 0 };

	memset(&stress, 0, sizeof(stress));
	REQUIRE_EQUAL(ring_create_with(&stress.ring, &options), 0);
	readings[0].ring = stress.ring;
	for (int i = 1; i < READERS; i++)
		attach(&readings[i], ring_memory_fd(stress.ring), i >= holders);
	run_threads(readings);
	read_the_rest(readings);
	check_sums(readings, holders);
	/* Fewer means that the timer did not run. */
	CHECK(stress.by_handler > 100);
	for (int i = READERS - 1; i >= 0; i--)
		ring_destroy(readings[i].ring);
}

TEST(ring_stress, consumer_mode_with_signals_and_three_readers)
{
	run_stress(RING_MODE_CONSUMER, 2);
}

TEST(ring_stress, overwrite_mode_with_signals_and_three_readers)
{
	run_stress(RING_MODE_OVERWRITE, 0);
}

/* --- kill -9 ----------------------------------------------------------------- */

/*
 * In memory that the writer shares with the test: the numbers of requested and completed records,
 * the number of requested ones when its thread last had none open, and its ring.
 */
static struct progress {
	uint64_t asked, done, since;
	int memory_fd; /* of the writer's process */
	bool ready, begin;
} * progress;

static void write_and_say_so(uint16_t type, uint64_t number)
{
	__atomic_fetch_add(&progress->asked, 1, __ATOMIC_SEQ_CST);
	write_one(stress.ring, type, number);
	__atomic_fetch_add(&progress->done, 1, __ATOMIC_SEQ_CST);
}

static void on_timer_of_child(int signal)
{
	(void)signal;
	if (stress.handles)
		return;
	stress.handles = true;
	write_and_say_so(RECORD_HANDLER, stress.by_handler++);
	stress.handles = false;
}

static void set(bool *word)
{
	__atomic_store_n(word, true, __ATOMIC_RELEASE);
}

static void wait_for(const bool *word)
{
	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
		usleep(100);
}

static void write_until_killed(enum ring_mode mode)
{
	struct ring_options options = { .size = RING_SIZE_MIN,
					.mode = mode,
					.reader.overrun = true };
	struct sigaction action = { .sa_handler = on_timer_of_child, .sa_flags = SA_RESTART };

	if (ring_create_with(&stress.ring, &options))
		abort();
	progress->memory_fd = ring_memory_fd(stress.ring);
	set(&progress->ready);
	wait_for(&progress->begin);
	sigaction(SIGUSR1, &action, NULL);
	start_timer(1000000000 / SIGNALS);
	for (uint64_t number = 0;; number++) {
		__atomic_store_n(&progress->since, progress->asked, __ATOMIC_SEQ_CST);
		write_and_say_so(RECORD_THREAD, number);
		if (number % 100 == 0)
			ring_flush(stress.ring);
	}
}

/* The writer's memory, with a description of our own: its locks are to end with it. */
static int open_memory(pid_t writer)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", writer, progress->memory_fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		abort();
	return fd;
}

/* Kills it a moment after it began, and reads while it writes. */
static void run_and_kill(pid_t writer, struct reading *reading)
{
	double end;

	set(&progress->begin);
	while (!__atomic_load_n(&progress->done, __ATOMIC_ACQUIRE))
		usleep(100);
	end = now() + random() % 3000 * 1e-6;
	while (now() < end)
		read_what_is_there(reading);
	kill(writer, SIGKILL);
	REQUIRE_EQUAL(waitpid(writer, NULL, 0), writer);
}

/*
 * Whole records, all that the dead writer published; and how many there are
 * besides: open ones, and those that it committed and did not publish.
 */
static void check_what_is_left(const struct reading *reading, enum ring_mode mode)
{
	struct ring_statistics statistics;
	uint64_t finished;

	check_reading(reading);
	ring_statistics(reading->ring, &statistics);
	finished = statistics.written + statistics.lost + statistics.discarded;
	/* Each level, thread and handler, may be between asking and having, or between finishing
	 * and saying so. */
	CHECK(finished >= progress->done && finished <= progress->asked);
	CHECK(statistics.open <= 2);
	CHECK(finished + statistics.open <= progress->asked);
	/* Behind an open record nothing is published, however many handlers come and commit. */
	if (mode == RING_MODE_OVERWRITE)
		CHECK(statistics.unread <= progress->asked - progress->since);
	else
		CHECK(statistics.unread <= RING_SIZE_MIN / 16);
}

static void kill_a_writer(enum ring_mode mode, uint64_t in_flight[3])
{
	struct reading before, after;
	struct ring_statistics statistics;
	pid_t writer;
	int fd;

	memset(progress, 0, sizeof(*progress));
	memset(&stress, 0, sizeof(stress));
	writer = fork();
	if (!writer)
		write_until_killed(mode);
	wait_for(&progress->ready);
	fd = open_memory(writer);
	attach(&before, fd, mode == RING_MODE_OVERWRITE);
	run_and_kill(writer, &before);
	/* One that was there, and one that comes when all is over. */
	attach(&after, fd, true);
	read_what_is_there(&after);
	read_what_is_there(&before);
	check_what_is_left(&before, mode);
	check_what_is_left(&after, mode);
	ring_statistics(after.ring, &statistics);
	in_flight[statistics.open < 2 ? statistics.open : 2]++;
	ring_destroy(after.ring);
	ring_destroy(before.ring);
	close(fd);
}

static void kill_writers(enum ring_mode mode)
{
	long times = environment("RING_KILLS", 50);
	uint64_t in_flight[3] = { 0 };

	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	REQUIRE(progress != MAP_FAILED);
	srandom(getpid());
	for (long i = 0; i < times; i++)
		kill_a_writer(mode, in_flight);
	printf("killed with no record in flight: %llu times, with one: %llu, with two: %llu\n",
	       (unsigned long long)in_flight[0], (unsigned long long)in_flight[1],
	       (unsigned long long)in_flight[2]);
	munmap(progress, sizeof(*progress));
}

TEST(ring_stress, consumer_mode_and_killed_writers)
{
	kill_writers(RING_MODE_CONSUMER);
}

TEST(ring_stress, overwrite_mode_and_killed_writers)
{
	kill_writers(RING_MODE_OVERWRITE);
}
