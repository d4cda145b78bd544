/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "tests/unit/shim/test.h"
#include "vmm/guest/agent_clock.h"
#include "vmm/guest/agent_tsc.h"

#define MS 1000000ull

TEST(agent_clock, one_exchange_bounds_the_difference_from_both_sides)
{
	struct agent_clock clock = { 0 };
	uint64_t error, time;

	agent_clock_exchange(&clock, 5000, 5200, 1000);
	time = agent_clock_host_time(&clock, 1000, &error);
	CHECK_EQUAL(time, 5100);
	CHECK(error >= 100 && error <= 102);
}

TEST(agent_clock, quick_exchange_is_worth_more_than_slow_ones)
{
	struct agent_clock clock = { 0 };
	uint64_t error;

	agent_clock_exchange(&clock, 100 * MS, 150 * MS, 10 * MS);
	agent_clock_exchange(&clock, 200 * MS, 200 * MS + 20000, 100 * MS + 9000);
	agent_clock_exchange(&clock, 210 * MS, 260 * MS, 120 * MS);
	CHECK(agent_clock_host_time(&clock, 100 * MS + 9000, &error) >= 200 * MS);
	CHECK(error < 100000);
	CHECK(agent_clock_host_time(&clock, 100 * MS + 9000, &error) <= 200 * MS + 20000);
}

TEST(agent_clock, contradiction_is_a_jump)
{
	struct agent_clock clock = { 0 };
	uint64_t error;

	agent_clock_exchange(&clock, 1000 * MS, 1001 * MS, 5 * MS);
	CHECK(!agent_clock_agrees(&clock, 2000 * MS, 2001 * MS, 5 * MS));
	agent_clock_exchange(&clock, 2000 * MS, 2001 * MS, 5 * MS);
	CHECK_EQUAL(clock.jumps, 1);
	CHECK(agent_clock_host_time(&clock, 5 * MS, &error) >= 2000 * MS);
}

static uint64_t random_below(uint64_t limit)
{
	return ((uint64_t)rand() << 16 ^ (uint64_t)rand()) % limit;
}

/* A guest's clock that is PPM fast and began at another time. */
static uint64_t guest_clock(uint64_t host, int ppm)
{
	return host - 77777 * MS + (uint64_t)((int64_t)(host / 1000000) * ppm);
}

static void truth_lies_within_the_error(int ppm)
{
	struct agent_clock clock = { 0 };
	uint64_t host = 100000 * MS, last_guest = 0, last = 0, error;

	for (int i = 0; i < 3000; i++) {
		uint64_t to = random_below(3 * MS), back = random_below(5 * MS), guest, at;

		agent_clock_exchange(&clock, host, host + to + back, guest_clock(host + to, ppm));
		/* events of the last half second in any order: each at its time, and their order kept */
		for (int event = 0; event < 20; event++) {
			uint64_t when = host + to + back - random_below(500 * MS), away;

			guest = guest_clock(when, ppm);
			at = agent_clock_host_time(&clock, guest, &error);
			away = at > when ? at - when : when - at;
			if (away > error)
				FAIL_TEST("ppm %d: %llu ns from the truth, said %llu", ppm,
					  (unsigned long long)away, (unsigned long long)error);
		}
		guest = guest_clock(host + to, ppm);
		at = agent_clock_host_time(&clock, guest, &error);
		CHECK(guest > last_guest && at >= last);
		last = at;
		last_guest = guest;
		host += to + back + random_below(1000 * MS);
	}
	CHECK_EQUAL(clock.jumps, 0);
	CHECK(error < 4 * MS);
}

TEST(agent_clock, truth_lies_within_the_error_whatever_the_drift)
{
	srand(7);
	truth_lies_within_the_error(0);
	truth_lies_within_the_error(300);
	truth_lies_within_the_error(-300);
	truth_lies_within_the_error(499);
}

/* Times once given stay in order though the difference is corrected downwards. */
TEST(agent_clock, time_never_runs_backwards)
{
	struct agent_clock clock = { 0 };
	uint64_t last = 0, error;

	agent_clock_exchange(&clock, 0, 100 * MS, 1000 * MS);
	for (uint64_t guest = 1000 * MS; guest < 1300 * MS; guest += MS) {
		if (guest == 1100 * MS)
			agent_clock_exchange(&clock, 101 * MS, 102 * MS, 1100 * MS);
		CHECK(agent_clock_host_time(&clock, guest, &error) >= last);
		last = agent_clock_host_time(&clock, guest, &error);
	}
	for (uint64_t guest = 1000 * MS, before = 0; guest < 1300 * MS; guest += MS / 2) {
		uint64_t at = agent_clock_host_time(&clock, guest, &error);

		CHECK(at >= before);
		before = at;
	}
	CHECK(error < 3 * MS);
}

TEST(agent_clock, hostile_times_do_no_harm)
{
	struct agent_clock clock = { 0 };
	uint64_t error;

	srand(8);
	for (int i = 0; i < 100000; i++) {
		uint64_t before = random_below(UINT64_MAX);
		uint64_t guest = i % 3 ? random_below(UINT64_MAX) << 32 : UINT64_MAX - random_below(3);

		agent_clock_exchange(&clock, before, before + random_below(UINT64_MAX - before), guest);
		agent_clock_host_time(&clock, random_below(UINT64_MAX) << 20, &error);
	}
}

TEST(agent_tsc, line_through_two_marks)
{
	struct tsc_mark first = { .time = 1000000, .tsc = 5000, .width = 20 };
	struct tsc_mark last = { .time = 2000000, .tsc = 3005000, .width = 40 };
	uint64_t low, high;

	CHECK(tsc_time(&first, &last, 1505000, &low, &high));
	CHECK(low <= 1500000 && high >= 1500000 && high - low <= 44);
	CHECK(!tsc_time(&first, &last, 4999, &low, &high));
	CHECK(!tsc_time(&first, &last, 3005001, &low, &high));
	CHECK(!tsc_time(&first, &first, 5000, &low, &high));
	CHECK(!tsc_time(&last, &first, 10000, &low, &high));
}

TEST(agent_tsc, mark_tells_the_time_of_what_is_between)
{
	struct tsc_mark first = tsc_mark_now(), middle = tsc_mark_now(), last;
	uint64_t low, high;

	if (!tsc_is_clock())
		SKIP("this host's kernel does not hold its TSC for a clock");
	for (volatile int i = 0; i < 1000000; i++)
		;
	last = tsc_mark_now();
	CHECK(tsc_time(&first, &last, middle.tsc + middle.width / 2, &low, &high));
	CHECK(low <= middle.time + middle.width && high + middle.width >= middle.time);
}
