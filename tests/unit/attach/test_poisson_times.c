/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a simulated thread: shares have to be those of its CPU time. */

#include "tests/unit/shim/test.h"
#include "vmm/attach/poisson_times.h"

#define INTERVAL 1000000ull
#define SAMPLES  1000000
#define SEED     0x9e3779b97f4a7c15ull

/* Alternates between running and sleeping, in ns; the first part of each burst is of one
 * function. */
struct bursts {
	uint64_t runs, sleeps, first;
};

/* Advances to TIME. Returns CPU time in ns and the position in the burst; false: it sleeps. */
static bool run_until(const struct bursts *bursts, uint64_t time, uint64_t *ran, uint64_t *inside)
{
	uint64_t period = bursts->runs + bursts->sleeps;

	*inside = time % period;
	*ran = time / period * bursts->runs + (*inside < bursts->runs ? *inside : bursts->runs);
	return *inside < bursts->runs;
}

/* The first function's part of the CPU time that samples stand for. Each read takes the given
 * time. */
static double share_of_first(const struct bursts *bursts, uint64_t stopped)
{
	struct poisson_times times = { .interval = INTERVAL, .random = SEED };
	uint64_t time = 0, last = 0, first = 0, all = 0;

	for (int i = 0; i < SAMPLES; i++) {
		uint64_t ran, inside, period;
		bool runs = run_until(bursts, time, &ran, &inside);

		if (runs) {
			period = poisson_times_period(&times, ran - last);
			last = ran;
			all += period;
			first += inside < bursts->first ? period : 0;
		}
		time = poisson_times_next(&times, time,
					  runs ? time + poisson_times_rest(&times, stopped) : time);
	}
	return (double)first / (double)all;
}

TEST(poisson_times, shares_are_of_cpu_time_however_long_bursts_are)
{
	for (uint64_t percent = 20; percent <= 300; percent += 20) {
		const struct bursts bursts = { .runs = INTERVAL * percent / 100,
					       .sleeps = 3 * INTERVAL + 12347,
					       .first = INTERVAL * percent / 100 / 4 };
		double share = share_of_first(&bursts, INTERVAL / 400);

		if (share < 0.24 || share > 0.26)
			FAIL_TEST("bursts of %llu %% of an interval: the first quarter has %.2f %%",
				  (unsigned long long)percent, 100 * share);
	}
}

/* Their average distance is a multiple of the period of the guest's work. */
TEST(poisson_times, long_rests_do_not_synchronize_with_the_guest)
{
	const uint64_t stopped = 25 * INTERVAL;

	for (uint64_t part = 1; part <= 4; part++) {
		const struct bursts bursts = { .runs = (4 * stopped + INTERVAL) / part,
					       .first = stopped / part };
		double truth = (double)bursts.first / (double)bursts.runs;
		double share = share_of_first(&bursts, stopped);

		if (share < truth - 0.005 || share > truth + 0.005)
			FAIL_TEST(
				"a part of %.2f %% in work of a %lluth of the distance between samples has %.2f %%",
				100 * truth, (unsigned long long)part, 100 * share);
	}
}

TEST(poisson_times, a_rest_is_as_long_as_the_stop_at_least_and_four_times_on_average)
{
	struct poisson_times times = { .interval = INTERVAL, .random = SEED };
	uint64_t sum = 0;

	for (int i = 0; i < SAMPLES; i++) {
		uint64_t rest = poisson_times_rest(&times, 1000);

		REQUIRE(rest >= 1000 && rest <= 25000);
		sum += rest;
	}
	CHECK(sum / SAMPLES > 3960 && sum / SAMPLES < 4040);
	CHECK_EQUAL(poisson_times_rest(&times, 0), 0);
}

TEST(poisson_times, have_the_requested_rate_and_bounded_intervals)
{
	struct poisson_times times = { .interval = INTERVAL, .random = SEED };
	uint64_t time = 0, longest = 0;

	for (int i = 0; i < SAMPLES; i++) {
		uint64_t next = poisson_times_next(&times, time, time);

		if (next - time > longest)
			longest = next - time;
		time = next;
	}
	CHECK_EQUAL(longest, 8 * INTERVAL);
	CHECK(time / SAMPLES > INTERVAL * 99 / 100 && time / SAMPLES < INTERVAL * 101 / 100);
}

/* The next one is at an average distance from there. */
TEST(poisson_times, late_times_are_skipped)
{
	const uint64_t earliest = 1ull << 60;
	struct poisson_times times = { .interval = INTERVAL, .random = SEED };
	uint64_t sum = 0;

	for (int i = 0; i < SAMPLES; i++) {
		uint64_t next = poisson_times_next(&times, 0, earliest);

		REQUIRE(next >= earliest);
		sum += next - earliest;
	}
	CHECK(sum / SAMPLES > INTERVAL * 99 / 100 && sum / SAMPLES < INTERVAL * 101 / 100);
}

TEST(poisson_times, periods_are_cpu_time_with_a_limit)
{
	const struct poisson_times often = { .interval = INTERVAL },
				   seldom = { .interval = 100 * INTERVAL };

	CHECK_EQUAL(poisson_times_period(&often, 3 * INTERVAL), 3 * INTERVAL);
	CHECK_EQUAL(poisson_times_period(&often, 200 * INTERVAL), 100 * INTERVAL);
	CHECK_EQUAL(poisson_times_period(&seldom, 900 * INTERVAL), 900 * INTERVAL);
	CHECK_EQUAL(poisson_times_period(&seldom, 1100 * INTERVAL), 1000 * INTERVAL);
}
