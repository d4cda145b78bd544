/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the ring's tests: records that can be checked for completeness, counting them, and
 * interruptions.
 */
#ifndef KVMSCOPE_TESTS_UNIT_RING_RECORDS_H
#define KVMSCOPE_TESTS_UNIT_RING_RECORDS_H

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shared/ring.h"
#include "tests/unit/shim/test.h"

enum { RECORD_THREAD = 8, RECORD_HANDLER = 9 };

struct payload {
	uint64_t number;
	uint64_t words;
	uint64_t checksum;
	uint64_t word[];
};

static inline uint64_t mix(uint64_t value)
{
	value ^= value >> 31;
	return value * 0x9e3779b97f4a7c15ull + 1;
}

static inline void fill_payload(struct payload *payload, uint64_t number, uint64_t words)
{
	uint64_t value = mix(number);

	payload->number = number;
	payload->words = words;
	for (uint64_t i = 0; i < words; i++) {
		payload->word[i] = value;
		value = mix(value);
	}
	payload->checksum = value;
}

static inline bool payload_is_good(const struct ring_record *record)
{
	const struct payload *payload = (const struct payload *)record->payload;
	uint64_t value = mix(payload->number);

	if (record->size != sizeof(*record) + sizeof(*payload) + 8 * payload->words)
		return false;
	for (uint64_t i = 0; i < payload->words; i++) {
		if (payload->word[i] != value)
			return false;
		value = mix(value);
	}
	return payload->checksum == value;
}

static inline bool produce(struct ring *ring, uint16_t type, uint64_t number, uint64_t words,
			   bool discard)
{
	struct payload *payload = ring_reserve(ring, type, sizeof(*payload) + 8 * words);

	if (payload)
		fill_payload(payload, number, words);
	if (discard)
		ring_discard(ring, payload);
	else
		ring_commit(ring, payload);
	return payload;
}

/* What a reader counted. */
struct tally {
	uint64_t records;
	uint64_t lost;
	uint64_t bad;
	uint64_t next[2]; /* the lowest number expected next, by type */
};

static inline void count_record(struct tally *tally, const struct ring_record *record)
{
	const struct payload *payload = (const struct payload *)record->payload;
	uint64_t *next;

	if (record->type == RING_RECORD_LOST) {
		tally->lost += ((const struct ring_lost *)record->payload)->count;
		return;
	}
	tally->records++;
	if ((record->type != RECORD_THREAD && record->type != RECORD_HANDLER) ||
	    !payload_is_good(record)) {
		tally->bad++;
		return;
	}
	next = &tally->next[record->type - RECORD_THREAD];
	if (payload->number < *next)
		tally->bad++;
	*next = payload->number + 1;
}

static inline void read_all(struct ring *ring, struct tally *tally)
{
	const struct ring_record *record;

	while ((record = ring_read(ring)))
		count_record(tally, record);
	ring_read_done(ring);
}

static inline void check_sum(struct ring *ring, uint64_t produced, const struct tally *tally)
{
	struct ring_statistics statistics;

	ring_statistics(ring, &statistics);
	CHECK_EQUAL(statistics.written + statistics.lost + statistics.discarded, produced);
	CHECK_EQUAL(tally->records, statistics.written);
	CHECK_EQUAL(tally->lost, statistics.lost);
	CHECK_EQUAL(tally->bad, 0);
	CHECK_EQUAL(statistics.broken, 0);
	CHECK_EQUAL(statistics.unread, 0);
}

/* ns, less than a second */
static inline void set_timer(timer_t timer, long interval)
{
	struct itimerspec spec = { { 0, interval }, { 0, interval } };

	timer_settime(timer, 0, &spec, NULL);
}

static inline timer_t start_timer(long interval)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	timer_t timer;

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
	event.sigev_notify_thread_id = syscall(SYS_gettid);
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	set_timer(timer, interval);
	return timer;
}

static inline double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

#ifdef __x86_64__

/*
 * Raises SIGTRAP after each instruction until a handler clears the flag in the saved flags, or
 * trap_off().
 */
#define TRAP_FLAG 0x100

/*
 * AddressSanitizer adds many instructions, each of which costs a trap: only one in this number is
 * used then.
 */
#ifdef __SANITIZE_ADDRESS__
#define RING_STEP_STRIDE 37
#else
#define RING_STEP_STRIDE 1
#endif

__attribute__((noinline, unused)) static void trap_on(void)
{
	__asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "memory", "cc");
}

__attribute__((noinline, unused)) static void trap_off(void)
{
	__asm__ volatile("pushfq; andq %0, (%%rsp); popfq" : : "i"(~TRAP_FLAG) : "memory", "cc");
}

#endif

#endif
