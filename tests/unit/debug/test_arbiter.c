/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/debug/arbiter.h"

#define VCPUS  2
#define SPACES 3 /* and no address space */

/* Sanitized builds are ten times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS 4
#else
#define STEPS 6
#endif

static struct arbiter *make(unsigned int vcpus, enum breakpoint_priority priority)
{
	struct arbiter *arbiter = NULL;

	CHECK_EQUAL(arbiter_create(&arbiter, &(struct arbiter_options){ .vcpus = vcpus,
									.priority = priority }),
		    0);
	return arbiter;
}

static int reserve(struct arbiter *arbiter, bool pinned, int vcpu, uint64_t space)
{
	return arbiter_reserve(arbiter, &(struct arbiter_request){ pinned, vcpu, space });
}

static int enabled(struct arbiter *arbiter, bool pinned, int vcpu, uint64_t space, uint64_t now)
{
	int holder = reserve(arbiter, pinned, vcpu, space);

	if (holder >= 0)
		arbiter_set_enabled(arbiter, holder, true, now);
	return holder;
}

/* The oracle: the granted requests, and the rule applied literally to a table of them. A
 * sequence of the search is a path from an empty table. */
struct oracle {
	struct arbiter *arbiter;
	struct arbiter_request held[STEPS];
	int numbers[STEPS];
	int count;
	unsigned int vcpus_named,
		spaces_named; /* number of requests, in the order of their numbers */
	uint64_t sequences;
	bool failed;
};

/* [vcpu][0] pinned without a space, [vcpu][1 to SPACES] by each space, [vcpu][SPACES + 1]
 * flexible */
static void fill_table(const struct oracle *oracle, int table[VCPUS][SPACES + 2])
{
	memset(table, 0, VCPUS * sizeof(table[0]));
	for (int i = 0; i < oracle->count; i++)
		for (int vcpu = 0; vcpu < VCPUS; vcpu++)
			if (oracle->held[i].vcpu < 0 || oracle->held[i].vcpu == vcpu)
				table[vcpu][oracle->held[i].pinned ? (int)oracle->held[i].space
								   : SPACES + 1]++;
}

static bool expected(const struct oracle *oracle, const struct arbiter_request *request)
{
	int table[VCPUS][SPACES + 2], p[VCPUS], most_p = 0, most_f = 0;
	bool each_joins = true;

	fill_table(oracle, table);
	for (int vcpu = 0; vcpu < VCPUS; vcpu++) {
		int space = table[vcpu][1];

		for (int i = 2; i <= SPACES; i++)
			space = table[vcpu][i] > space ? table[vcpu][i] : space;
		p[vcpu] = table[vcpu][0] + space;
		if (request->vcpu >= 0 && request->vcpu != vcpu)
			continue;
		most_p = p[vcpu] > most_p ? p[vcpu] : most_p;
		most_f = table[vcpu][SPACES + 1] > most_f ? table[vcpu][SPACES + 1] : most_f;
		each_joins &= table[vcpu][SPACES + 1] > 0 || p[vcpu] < 4;
	}
	return request->pinned ? most_p + (most_f > 0) < 4 : each_joins;
}

static void note(struct oracle *oracle, const struct arbiter_request *request, int number)
{
	if (oracle->failed)
		return;
	oracle->failed = true;
	FAIL_TEST("%s for vCPU %d, space %llu with %d held: answered %d",
		  request->pinned ? "pinned" : "flexible", request->vcpu,
		  (unsigned long long)request->space, oracle->count, number);
	for (int i = 0; i < oracle->count; i++)
		FAIL_TEST("  held: %s, vCPU %d, space %llu",
			  oracle->held[i].pinned ? "pinned" : "flexible", oracle->held[i].vcpu,
			  (unsigned long long)oracle->held[i].space);
}

static void search(struct oracle *oracle, int steps);

static void try_request(struct oracle *oracle, const struct arbiter_request *request, int steps)
{
	bool grant = expected(oracle, request);
	int number = arbiter_reserve(oracle->arbiter, request);

	oracle->sequences++;
	if (grant != (number >= 0) || (!grant && number != -ENOSPC))
		note(oracle, request, number);
	if (number >= 0 && steps > 1) {
		oracle->held[oracle->count] = *request;
		oracle->numbers[oracle->count++] = number;
		search(oracle, steps - 1);
		number = oracle->numbers[--oracle->count]; /* it may have been released and reserved
							      again */
	} else if (steps > 1) {
		search(oracle, steps - 1); /* a refusal must not change anything */
	}
	if (number >= 0)
		arbiter_release(oracle->arbiter, number, 0);
}

/* vCPUs and spaces are symmetric: an unused one may as well be the one with the next number. */
static void try_requests(struct oracle *oracle, int steps)
{
	unsigned int vcpus = oracle->vcpus_named, spaces = oracle->spaces_named;

	for (int pinned = 0; pinned < 2; pinned++)
		for (int vcpu = -1; vcpu < VCPUS && vcpu <= (int)vcpus; vcpu++)
			for (unsigned int space = 0; space <= SPACES && space <= spaces + 1;
			     space++) {
				struct arbiter_request request = { pinned, vcpu, space };

				oracle->vcpus_named = vcpu == (int)vcpus ? vcpus + 1 : vcpus;
				oracle->spaces_named = space == spaces + 1 ? spaces + 1 : spaces;
				try_request(oracle, &request, steps);
			}
	oracle->vcpus_named = vcpus;
	oracle->spaces_named = spaces;
}

/* Reserves in the arbiter what BEFORE has, in its order: what was granted there is also granted
 * with fewer holders. */
static void restore(struct oracle *oracle, const struct oracle *before)
{
	for (int i = 0; i < oracle->count; i++)
		arbiter_release(oracle->arbiter, oracle->numbers[i], 0);
	memcpy(oracle->held, before->held, sizeof(before->held));
	oracle->count = before->count;
	for (int i = 0; i < before->count; i++) {
		oracle->numbers[i] = arbiter_reserve(oracle->arbiter, &before->held[i]);
		if (oracle->numbers[i] < 0)
			note(oracle, &before->held[i], oracle->numbers[i]);
	}
}

static void try_releases(struct oracle *oracle, int steps)
{
	for (int i = 0; i < oracle->count && steps > 1 && !oracle->failed; i++) {
		struct oracle before = *oracle;

		arbiter_release(oracle->arbiter, oracle->numbers[i], 0);
		oracle->count--;
		for (int k = i; k < oracle->count; k++) {
			oracle->held[k] = before.held[k + 1];
			oracle->numbers[k] = before.numbers[k + 1];
		}
		search(oracle, steps - 1);
		restore(oracle, &before);
	}
}

static void search(struct oracle *oracle, int steps)
{
	if (oracle->failed)
		return;
	try_requests(oracle, steps);
	try_releases(oracle, steps);
}

TEST(arbiter, every_sequence_is_granted_by_the_rule)
{
	struct oracle oracle = { .arbiter = make(VCPUS, BREAKPOINT_PRIORITY_GUEST) };

	search(&oracle, STEPS);
	printf("%llu sequences of up to %d steps\n", (unsigned long long)oracle.sequences, STEPS);
	arbiter_destroy(oracle.arbiter);
}

/* Each holder gets its promised share over the turns. */
static void check_schedule(struct oracle *oracle)
{
	uint64_t ran = 0, now = 1;
	int table[VCPUS][SPACES + 2];

	fill_table(oracle, table);
	for (int i = 0; i < oracle->count; i++)
		arbiter_set_enabled(oracle->arbiter, oracle->numbers[i], true, now);
	for (int moment = 0; moment < 6 * VCPUS; moment++, now += ARBITER_PERIOD / VCPUS) {
		unsigned int vcpu = (unsigned int)moment % VCPUS;
		int pinned = 0, flexible = 0;
		struct arbiter_schedule schedule;
		uint64_t seen = 0;

		arbiter_schedule(oracle->arbiter, vcpu, now, &schedule);
		for (int i = 0; i < oracle->count; i++)
			for (int slot = 0; slot < DEBUG_SLOTS; slot++) {
				if (schedule.holders[slot] != oracle->numbers[i])
					continue;
				if (seen & 1ull << i || (oracle->held[i].vcpu >= 0 &&
							 oracle->held[i].vcpu != (int)vcpu))
					note(oracle, &oracle->held[i], -1);
				seen |= 1ull << i;
				pinned += oracle->held[i].pinned && !oracle->held[i].space;
				flexible += !oracle->held[i].pinned;
			}
		if (pinned != table[vcpu][0] || (flexible == 0) != (table[vcpu][SPACES + 1] == 0) ||
		    schedule.suspended)
			note(oracle, &(struct arbiter_request){ .vcpu = (int)vcpu }, flexible);
		ran |= seen;
	}
	for (int i = 0; i < oracle->count; i++)
		if (!(ran >> i & 1))
			note(oracle, &oracle->held[i], -2);
	for (int i = 0; i < oracle->count; i++)
		arbiter_set_enabled(oracle->arbiter, oracle->numbers[i], false, now);
}

static void search_schedules(struct oracle *oracle, int steps)
{
	check_schedule(oracle);
	for (int number = 0; number < 24 && steps && !oracle->failed; number++) {
		struct arbiter_request request = { number % 2, number / 2 % 3 - 1,
						   (uint64_t)number / 6 };
		int holder = arbiter_reserve(oracle->arbiter, &request);

		if (holder < 0)
			continue;
		oracle->sequences++;
		oracle->held[oracle->count] = request;
		oracle->numbers[oracle->count++] = holder;
		search_schedules(oracle, steps - 1);
		oracle->count--;
		arbiter_release(oracle->arbiter, holder, 0);
	}
}

TEST(arbiter, every_holder_gets_the_registers_it_was_promised)
{
	struct oracle oracle = { .arbiter = make(VCPUS, BREAKPOINT_PRIORITY_GUEST) };

	search_schedules(&oracle, STEPS > 4 ? 4 : 3);
	printf("%llu sets of holders\n", (unsigned long long)oracle.sequences);
	arbiter_destroy(oracle.arbiter);
}

TEST(arbiter, refusal_names_the_holders)
{
	struct arbiter *arbiter = make(2, BREAKPOINT_PRIORITY_GUEST);

	arbiter_set_guest(arbiter, 1, 0x5);
	CHECK(reserve(arbiter, true, 1, 0) >= 0);
	CHECK(reserve(arbiter, true, 1, 0) >= 0);
	CHECK_EQUAL(reserve(arbiter, true, 1, 0), -ENOSPC);
	CHECK(strstr(error_message(), "vCPU 1"));
	CHECK(strstr(error_message(), "4 are pinned or used by the guest (2)"));
	CHECK_EQUAL(reserve(arbiter, false, ARBITER_ALL_VCPUS, 0), -ENOSPC);
	CHECK(reserve(arbiter, true, 0, 0) >= 0);
	arbiter_destroy(arbiter);
}

TEST(arbiter, number_of_holders_is_bounded)
{
	struct arbiter *arbiter = make(1, BREAKPOINT_PRIORITY_GUEST);

	for (int i = 0; i < ARBITER_HOLDERS_MAX; i++)
		CHECK_EQUAL(reserve(arbiter, false, 0, 0), i);
	CHECK_EQUAL(reserve(arbiter, false, 0, 0), -EMFILE);
	arbiter_release(arbiter, 17, 0);
	CHECK_EQUAL(reserve(arbiter, false, 0, 0), 17);
	arbiter_destroy(arbiter);
}

struct racer {
	struct arbiter *arbiter;
	int vcpu;
	uint64_t granted, refused;
};

#define RACES 20000

/* Holds one at a time. */
static void *race(void *argument)
{
	struct racer *racer = argument;

	for (int i = 0; i < RACES; i++) {
		int holder = reserve(racer->arbiter, true, racer->vcpu, 0);

		racer->granted += holder >= 0;
		racer->refused += holder == -ENOSPC;
		if (holder >= 0)
			arbiter_release(racer->arbiter, holder, 0);
	}
	return NULL;
}

static void race_all(struct racer *racers, int count)
{
	pthread_t threads[8];

	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, race, &racers[i]);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

/* As many as there are registers: a refusal would be for a reservation without an owner. */
TEST(arbiter, racing_requests_for_all_vcpus_fit)
{
	struct arbiter *arbiter = make(8, BREAKPOINT_PRIORITY_GUEST);
	struct racer racers[DEBUG_SLOTS];

	for (int i = 0; i < DEBUG_SLOTS; i++)
		racers[i] = (struct racer){ .arbiter = arbiter, .vcpu = ARBITER_ALL_VCPUS };
	race_all(racers, DEBUG_SLOTS);
	for (int i = 0; i < DEBUG_SLOTS; i++)
		CHECK_EQUAL(racers[i].granted, RACES);
	arbiter_destroy(arbiter);
}

/* The last vCPU is full, so a request for all vCPUs fails there, without a trace on the others. */
TEST(arbiter, failing_requests_for_all_vcpus_do_not_affect_others)
{
	struct arbiter *arbiter = make(8, BREAKPOINT_PRIORITY_GUEST);
	struct racer racers[6];

	for (int i = 0; i < DEBUG_SLOTS; i++)
		CHECK(reserve(arbiter, true, 7, 0) >= 0);
	for (int i = 0; i < 6; i++)
		racers[i] =
			(struct racer){ .arbiter = arbiter, .vcpu = i < 4 ? 0 : ARBITER_ALL_VCPUS };
	race_all(racers, 6);
	for (int i = 0; i < 4; i++)
		CHECK_EQUAL(racers[i].granted, RACES);
	for (int i = 4; i < 6; i++)
		CHECK_EQUAL(racers[i].refused, RACES);
	arbiter_destroy(arbiter);
}

TEST(arbiter, reserved_is_not_yet_armed)
{
	struct arbiter *arbiter = make(1, BREAKPOINT_PRIORITY_GUEST);
	struct arbiter_schedule schedule;
	uint64_t before = arbiter_generation(arbiter);
	int holder = reserve(arbiter, true, 0, 0);

	arbiter_schedule(arbiter, 0, 1, &schedule);
	CHECK_EQUAL(schedule.holders[0], ARBITER_SLOT_FREE);
	CHECK_EQUAL(schedule.suspended, 0);
	arbiter_set_enabled(arbiter, holder, true, 2);
	CHECK(arbiter_generation(arbiter) != before);
	arbiter_schedule(arbiter, 0, 3, &schedule);
	CHECK_EQUAL(schedule.holders[0], holder);
	CHECK_EQUAL(schedule.next, ARBITER_NEVER);
	arbiter_destroy(arbiter);
}

/* The next holder with its number is in no register before the next schedule. */
TEST(arbiter, released_is_in_no_schedule)
{
	struct arbiter *arbiter = make(1, BREAKPOINT_PRIORITY_GUEST);
	int holder = enabled(arbiter, true, 0, 0, 1);
	struct arbiter_schedule schedule;
	struct arbiter_times times;

	arbiter_schedule(arbiter, 0, 2, &schedule);
	CHECK_EQUAL(schedule.holders[0], holder);
	arbiter_release(arbiter, holder, 3);
	CHECK_EQUAL(enabled(arbiter, true, 0, 0, 4), holder);
	arbiter_times(arbiter, 0, holder, 5, &times);
	CHECK_EQUAL(times.enabled, 1);
	CHECK_EQUAL(times.running, 0);
	arbiter_release(arbiter, holder, 6);
	arbiter_schedule(arbiter, 0, 7, &schedule);
	CHECK_EQUAL(schedule.holders[0], ARBITER_SLOT_FREE);
	arbiter_destroy(arbiter);
}

TEST(arbiter, flexible_holders_take_turns_and_times_are_counted)
{
	struct arbiter *arbiter = make(1, BREAKPOINT_PRIORITY_GUEST);
	struct arbiter_schedule schedule;
	struct arbiter_times times;
	uint64_t now = 1000;
	int pinned, flexible[6];

	pinned = enabled(arbiter, true, 0, 0, now);
	for (int i = 0; i < 6; i++)
		flexible[i] = enabled(arbiter, false, ARBITER_ALL_VCPUS, 0, now);
	for (int turn = 0; turn < 60; turn++) {
		arbiter_schedule(arbiter, 0, now, &schedule);
		CHECK_EQUAL(schedule.holders[0], pinned);
		CHECK_EQUAL(schedule.next, now + ARBITER_PERIOD);
		arbiter_schedule(arbiter, 0, now + ARBITER_PERIOD / 2,
				 &schedule); /* too early for the next */
		now = schedule.next;
	}
	arbiter_times(arbiter, 0, pinned, now, &times);
	CHECK_EQUAL(times.enabled, 60 * ARBITER_PERIOD);
	CHECK_EQUAL(times.running, 60 * ARBITER_PERIOD);
	for (int i = 0; i < 6; i++) {
		arbiter_times(arbiter, 0, flexible[i], now, &times);
		CHECK_EQUAL(times.enabled, 60 * ARBITER_PERIOD);
		CHECK_EQUAL(times.running, 30 * ARBITER_PERIOD);
	}
	arbiter_destroy(arbiter);
}

TEST(arbiter, address_spaces_share_registers_that_each_has_to_itself)
{
	struct arbiter *arbiter = make(1, BREAKPOINT_PRIORITY_GUEST);
	struct arbiter_times times;
	struct arbiter_schedule schedule;
	uint64_t now = 5, running = 0;
	int holders[6];

	for (int i = 0; i < 6; i++) {
		holders[i] = enabled(arbiter, true, 0, 1 + (uint64_t)i / 3, now);
		CHECK(holders[i] >= 0);
	}
	for (int turn = 0; turn < 12; turn++, now += ARBITER_PERIOD)
		arbiter_schedule(arbiter, 0, now, &schedule);
	for (int i = 0; i < 6; i++) {
		arbiter_times(arbiter, 0, holders[i], now, &times);
		CHECK_EQUAL(times.enabled, 12 * ARBITER_PERIOD);
		CHECK(times.running >= 6 * ARBITER_PERIOD);
		running += times.running;
	}
	CHECK_EQUAL(running, 12 * ARBITER_PERIOD * DEBUG_SLOTS);
	arbiter_destroy(arbiter);
}

TEST(arbiter, address_spaces_leave_the_flexible_ones_a_register)
{
	struct arbiter *arbiter = make(1, BREAKPOINT_PRIORITY_GUEST);
	struct arbiter_schedule schedule;
	struct arbiter_times times;
	int flexible;

	for (int i = 0; i < 4; i++)
		CHECK(enabled(arbiter, true, 0, i < 3 ? 1 : 2, 1) >= 0);
	flexible = enabled(arbiter, false, 0, 0, 1);
	for (int turn = 0; turn < 8; turn++)
		arbiter_schedule(arbiter, 0, 1 + (uint64_t)turn * ARBITER_PERIOD, &schedule);
	arbiter_times(arbiter, 0, flexible, 1 + 7 * ARBITER_PERIOD, &times);
	CHECK_EQUAL(times.running, 7 * ARBITER_PERIOD);
	arbiter_destroy(arbiter);
}

TEST(arbiter, guest_keeps_its_registers_and_flexible_holders_yield_first)
{
	struct arbiter *arbiter = make(1, BREAKPOINT_PRIORITY_GUEST);
	struct arbiter_schedule schedule;
	int pinned[2], flexible;

	pinned[0] = enabled(arbiter, true, 0, 0, 1);
	pinned[1] = enabled(arbiter, true, 0, 0, 1);
	flexible = enabled(arbiter, false, 0, 0, 1);
	arbiter_schedule(arbiter, 0, 1, &schedule);
	CHECK_EQUAL(schedule.holders[2], flexible);

	CHECK(arbiter_set_guest(arbiter, 0, 0x3));
	CHECK(!arbiter_set_guest(arbiter, 0, 0x3));
	arbiter_schedule(arbiter, 0, 2, &schedule);
	CHECK_EQUAL(schedule.holders[0], ARBITER_SLOT_OF_GUEST);
	CHECK_EQUAL(schedule.holders[1], ARBITER_SLOT_OF_GUEST);
	CHECK_EQUAL(schedule.holders[2], pinned[0]);
	CHECK_EQUAL(schedule.holders[3], pinned[1]);
	CHECK_EQUAL(schedule.suspended, 1 << flexible);
	CHECK_EQUAL(schedule.guest_lost, 0);

	arbiter_set_guest(arbiter, 0, 0x7);
	arbiter_schedule(arbiter, 0, 3, &schedule);
	CHECK_EQUAL(schedule.holders[3], pinned[0]); /* the older one stays */
	CHECK_EQUAL(schedule.suspended, 1 << pinned[1] | 1 << flexible);
	arbiter_set_guest(arbiter, 0, 0xf);
	arbiter_schedule(arbiter, 0, 4, &schedule);
	CHECK_EQUAL(schedule.suspended, 1 << pinned[0] | 1 << pinned[1] | 1 << flexible);

	arbiter_set_guest(arbiter, 0, 0x8);
	arbiter_schedule(arbiter, 0, 5, &schedule);
	CHECK_EQUAL(schedule.suspended, 0);
	CHECK_EQUAL(schedule.holders[3], ARBITER_SLOT_OF_GUEST);
	CHECK_EQUAL(schedule.holders[2], flexible);
	arbiter_destroy(arbiter);
}

TEST(arbiter, host_priority_reports_the_guests_loss)
{
	struct arbiter *arbiter = make(1, BREAKPOINT_PRIORITY_HOST);
	struct arbiter_schedule schedule;
	int pinned[3];

	arbiter_set_guest(arbiter, 0, 0x3);
	for (int i = 0; i < 3; i++)
		pinned[i] = enabled(arbiter, true, 0, 0, 1);
	arbiter_schedule(arbiter, 0, 1, &schedule);
	CHECK_EQUAL(schedule.holders[2], pinned[0]);
	CHECK_EQUAL(schedule.holders[3], pinned[1]);
	CHECK_EQUAL(schedule.holders[0], pinned[2]);
	CHECK_EQUAL(schedule.holders[1], ARBITER_SLOT_OF_GUEST);
	CHECK_EQUAL(schedule.guest_lost, 0x1);
	CHECK_EQUAL(schedule.suspended, 0);
	arbiter_destroy(arbiter);
}

TEST(arbiter, paused_holder_lets_others_have_its_register)
{
	struct arbiter *arbiter = make(1, BREAKPOINT_PRIORITY_GUEST);
	struct arbiter_schedule schedule;
	struct arbiter_times times;
	int first, others[4];

	first = enabled(arbiter, false, 0, 0, 10);
	arbiter_schedule(arbiter, 0, 10, &schedule);
	arbiter_pause(arbiter, 0, first, 20, 100);
	for (int i = 0; i < 4; i++)
		others[i] = enabled(arbiter, false, 0, 0, 20);
	arbiter_schedule(arbiter, 0, 20, &schedule);
	CHECK_EQUAL(schedule.next, 100);
	for (int slot = 0; slot < DEBUG_SLOTS; slot++)
		CHECK(schedule.holders[slot] == others[slot]);
	arbiter_schedule(arbiter, 0, 100, &schedule);
	CHECK_EQUAL(schedule.next, 10 + ARBITER_PERIOD);
	arbiter_times(arbiter, 0, first, 120, &times);
	CHECK_EQUAL(times.enabled, 110);
	CHECK_EQUAL(times.running, 30);
	arbiter_destroy(arbiter);
}
