/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "tests/unit/clock_files.h"
#include "tests/unit/shim/test.h"
#include "vmm/agent/agent_clock.h"
#include "vmm/agent/agent_timeline.h"
#include "vmm/agent/agent_tsc.h"
#include "vmm/resolve/resolver.h"

#define MS 1000000ull

static enum agent_clock_result take(struct agent_clock *clock, uint64_t before, uint64_t after,
				    uint64_t guest)
{
	return agent_clock_add(clock, &(struct agent_clock_exchange){ before, after, guest });
}

TEST(agent_clock, one_exchange_bounds_the_difference_from_both_sides)
{
	struct agent_clock clock = { 0 };
	uint64_t error, time;

	CHECK_EQUAL(take(&clock, 5000, 5200, 1000), AGENT_CLOCK_ACCEPTED);
	time = agent_clock_host_time(&clock, 1000, &error);
	CHECK_EQUAL(time, 5100);
	CHECK(error >= 100 && error <= 102);
}

TEST(agent_clock, what_is_between_two_exchanges_is_known_by_both)
{
	struct agent_clock clock = { 0 };
	uint64_t error, time;

	take(&clock, 100 * MS, 100 * MS + 2000, 10 * MS);
	CHECK(!agent_clock_covers(&clock, 60 * MS));
	/* 2 % fast */
	CHECK_EQUAL(take(&clock, 198 * MS, 198 * MS + 2000, 110 * MS), AGENT_CLOCK_ACCEPTED);
	CHECK(agent_clock_covers(&clock, 60 * MS) && agent_clock_covers(&clock, 110 * MS));
	time = agent_clock_host_time(&clock, 60 * MS, &error);
	CHECK_EQUAL(time, 149 * MS + 1000);
	/* The clock may have been set in one step anywhere between. */
	CHECK(error >= MS && error < MS + MS / 2 + 3000);
}

TEST(agent_clock, rejects_imprecise_exchanges)
{
	struct agent_clock clock = { 0 };

	CHECK_EQUAL(take(&clock, 1000 * MS, 1041 * MS, 5 * MS), AGENT_CLOCK_IMPRECISE);
	CHECK(!agent_clock_covers(&clock, 0));
	CHECK_EQUAL(take(&clock, 1100 * MS, 1101 * MS, 105 * MS), AGENT_CLOCK_ACCEPTED);
	CHECK(agent_clock_covers(&clock, 105 * MS) && !agent_clock_covers(&clock, 105 * MS + 1));
}

TEST(agent_clock, contradiction_is_a_jump)
{
	struct agent_clock clock = { 0 };

	take(&clock, 1000 * MS, 1001 * MS, 500 * MS);
	/* back, still, and forth: each would be taken as such if it was less */
	CHECK_EQUAL(take(&clock, 1100 * MS, 1101 * MS, 499 * MS), AGENT_CLOCK_JUMPED);
	CHECK_EQUAL(take(&clock, 1100 * MS, 1101 * MS, 500 * MS), AGENT_CLOCK_JUMPED);
	CHECK_EQUAL(take(&clock, 1100 * MS, 1101 * MS, 578 * MS), AGENT_CLOCK_JUMPED);
	CHECK_EQUAL(take(&clock, 1100 * MS, 1101 * MS, 622 * MS), AGENT_CLOCK_JUMPED);
	CHECK_EQUAL(take(&clock, 1100 * MS, 1101 * MS, 580 * MS), AGENT_CLOCK_ACCEPTED);
}

/* How long samples wait, also for a source whose errors are unknown so far. */
TEST(agent_clock, errors_are_what_the_resolver_can_wait_for)
{
	CHECK(AGENT_CLOCK_ERROR_MAX <= RESOLVER_REACH);
}

TEST(agent_clock, at_the_end_events_happened_before_their_arrival)
{
	struct agent_clock clock = { 0 };
	uint64_t time, error;

	CHECK(!agent_clock_end(&clock, 1000 * MS, 5 * MS));
	take(&clock, 1000 * MS, 1000 * MS, 500 * MS);
	CHECK(!agent_clock_end(&clock, 1040 * MS, 500 * MS));
	CHECK(!agent_clock_end(&clock, 1040 * MS, 700 * MS));
	CHECK(agent_clock_end(&clock, 1040 * MS, 510 * MS));
	time = agent_clock_host_time(&clock, 510 * MS, &error);
	CHECK(time - error <= 1000 * MS && time + error >= 1040 * MS);
}

static uint64_t random_below(uint64_t limit)
{
	return ((uint64_t)rand() << 16 ^ (uint64_t)rand()) % limit;
}

/*
 * A guest's clock that is PPM fast, began at another time, and at each of the
 * host's multiples of STEPS is set by up to 9 ms to either side, never back. STEPS 0: it is not.
 */
struct guest_clock {
	int ppm;
	uint64_t steps;
};

static uint64_t show(const struct guest_clock *clock, uint64_t host)
{
	uint64_t time = host - 77777 * MS + (uint64_t)((int64_t)(host / 1000000) * clock->ppm);
	uint64_t number = clock->steps ? host / clock->steps : 0,
		 in = clock->steps ? host % clock->steps : 0;
	int64_t set = (int64_t)(number * 7919 % 19) * (int64_t)MS - 9 * (int64_t)MS;
	int64_t before = (int64_t)((number - 1) * 7919 % 19) * (int64_t)MS - 9 * (int64_t)MS;

	if (!clock->steps)
		return time;
	/* it nearly stops where it would run back */
	if (before - (int64_t)(in - in / 1000) > set)
		return time + (uint64_t)before - in + in / 1000;
	return time + (uint64_t)set;
}

struct event {
	uint64_t host, guest;
};

static void check_event(const struct agent_clock *clock, const struct event *event,
			const struct guest_clock *guest_clock)
{
	uint64_t error, at = agent_clock_host_time(clock, event->guest, &error);
	uint64_t away = at > event->host ? at - event->host : event->host - at;

	if (away > error)
		FAIL_TEST("ppm %d, steps %llu: %llu ns from the truth, reported %llu",
			  guest_clock->ppm, (unsigned long long)guest_clock->steps,
			  (unsigned long long)away, (unsigned long long)error);
	CHECK(error <= AGENT_CLOCK_ERROR_MAX);
}

/* Messages that take up to 8 ms to either side, as in a guest under load: as much as the clock
 * drifts in seconds. */
static void truth_lies_within_the_error(struct guest_clock guest_clock)
{
	struct agent_clock clock = { 0 };
	uint64_t host = 100000 * MS, last = 0, error;
	struct event events[20];

	take(&clock, host, host, show(&guest_clock, host));
	for (int i = 0; i < 3000; i++) {
		uint64_t from = host, to = random_below(8 * MS), back = random_below(8 * MS), at;

		host += 50 * MS + random_below(100 * MS);
		CHECK_EQUAL(take(&clock, host, host + to + back, show(&guest_clock, host + to)),
			    AGENT_CLOCK_ACCEPTED);
		for (int event = 0; event < 20; event++) {
			events[event].host = from + (host + to - from) * (uint64_t)event / 20;
			events[event].guest = show(&guest_clock, events[event].host);
			if (agent_clock_covers(&clock, events[event].guest))
				check_event(&clock, &events[event], &guest_clock);
			at = agent_clock_host_time(&clock, events[event].guest, &error);
			CHECK(!event || events[event].guest <= events[event - 1].guest ||
			      at >= last);
			last = at;
		}
		host += to + back;
	}
}

TEST(agent_clock, truth_lies_within_the_error_whatever_the_drift)
{
	const int drifts[] = { 0, 300, -300, 499, 3000, -3000, 10000, -10000, 50000, -50000 };

	srand(7);
	for (size_t i = 0; i < sizeof(drifts) / sizeof(drifts[0]); i++)
		truth_lies_within_the_error((struct guest_clock){ .ppm = drifts[i] });
}

TEST(agent_clock, truth_lies_within_the_error_where_the_clock_is_set)
{
	srand(9);
	truth_lies_within_the_error((struct guest_clock){ .steps = 1000 * MS + 7 });
	truth_lies_within_the_error((struct guest_clock){ .steps = 333 * MS + 1, .ppm = 2000 });
}

/*
 * A guest's clock that KVM sets at each load of its vCPU, INTERVAL apart, and that is PPM fast in
 * between; at each AHEAD_EVERYth the readings for it were AHEAD apart. It never shows less than it
 * did (pvclock's last_value).
 */
struct loaded_clock {
	uint64_t interval;
	int ppm;
	uint64_t ahead;
};

#define AHEAD_EVERY 37u

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t in_load(const struct loaded_clock *clock, uint64_t number, uint64_t in)
{
	uint64_t ahead = number % AHEAD_EVERY ? 0 : clock->ahead;

	return number * clock->interval + in + (uint64_t)((int64_t)in * clock->ppm / 1000000) +
	       ahead;
}

static uint64_t show_loaded(const struct loaded_clock *clock, uint64_t host)
{
	uint64_t number = host / clock->interval;
	uint64_t last_ahead = (number - 1) / AHEAD_EVERY * AHEAD_EVERY;

	return larger(in_load(clock, number, host % clock->interval),
		      larger(in_load(clock, number - 1, clock->interval),
			     in_load(clock, last_ahead, clock->interval))) -
	       77777 * MS;
}

/*
 * Messages arrive just after a load of the vCPU. The number of events whose error is larger than
 * the reported bound.
 */
static unsigned int count_wrong(const struct loaded_clock *loaded, uint64_t unseen)
{
	struct agent_clock clock = { .unseen = unseen };
	uint64_t from = 100000 * loaded->interval, error;
	unsigned int wrong = 0;

	take(&clock, from, from, show_loaded(loaded, from));
	for (int i = 0; i < 3000; i++) {
		uint64_t loads = (50 * MS + random_below(100 * MS)) / loaded->interval;
		uint64_t to = (from / loaded->interval + 1 + loads) * loaded->interval +
			      random_below(20000);
		uint64_t width = random_below(100000);

		/* Not near the loads that are ahead, which an exchange there would reveal. */
		if (to / loaded->interval % AHEAD_EVERY < AHEAD_EVERY / 2)
			to += AHEAD_EVERY / 2 * loaded->interval;
		CHECK_EQUAL(take(&clock, to - width / 2, to + width / 2, show_loaded(loaded, to)),
			    AGENT_CLOCK_ACCEPTED);
		for (unsigned int event = 0; event < 20; event++) {
			uint64_t host = from + random_below(to - from);
			uint64_t at =
				agent_clock_host_time(&clock, show_loaded(loaded, host), &error);

			wrong += (at > host ? at - host : host - at) > error;
			CHECK(error <= AGENT_CLOCK_ERROR_MAX);
		}
		from = to + width / 2;
	}
	return wrong;
}

/* The TSC's rate as Linux found it in an emulator beside much other work, was a third of the true
 * one, and the other way round. */
TEST(agent_clock, clock_that_is_set_anew_again_and_again_has_events_within_a_larger_error)
{
	const struct loaded_clock clocks[] = {
		{ .interval = MS, .ppm = -500000 },     { .interval = MS, .ppm = 2000000 },
		{ .interval = 18 * MS, .ppm = -20000 }, { .interval = 18 * MS, .ppm = -500000 },
		{ .interval = 9 * MS, .ppm = 2000000 }, { .interval = MS, .ahead = 9 * MS },
		{ .interval = MS, .ahead = 18 * MS },
	};

	srand(13);
	for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
		CHECK(count_wrong(&clocks[i], 0) > 0);
		CHECK_EQUAL(count_wrong(&clocks[i], AGENT_CLOCK_KVM_DRIFT), 0);
	}
}

TEST(agent_clock, what_is_unseen_is_taken_off_what_an_exchange_may_take)
{
	struct agent_clock clock = { .unseen = AGENT_CLOCK_KVM_DRIFT };
	uint64_t error;

	CHECK_EQUAL(take(&clock, 1000 * MS, 1021 * MS, 5 * MS), AGENT_CLOCK_IMPRECISE);
	CHECK(!agent_clock_usable(&clock,
				  &(struct agent_clock_exchange){ 1000 * MS, 1062 * MS, 5 * MS }));
	CHECK(agent_clock_usable(&clock,
				 &(struct agent_clock_exchange){ 1000 * MS, 1060 * MS, 5 * MS }));
	CHECK_EQUAL(take(&clock, 1000 * MS, 1020 * MS, 5 * MS), AGENT_CLOCK_ACCEPTED);
	agent_clock_host_time(&clock, 5 * MS, &error);
	CHECK(error >= 30 * MS);
}

/*
 * Messages take up to 80 ms in each direction, so some exchanges are not usable. After one of
 * these a new session begins.
 */
static void what_serves_gives_all_a_place(struct guest_clock guest_clock)
{
	struct agent_clock clock = { 0 };
	uint64_t host = 100000 * MS, from = 0, taken = 0, refused = 0;

	for (int i = 0; i < 3000; i++) {
		uint64_t to = random_below(80 * MS), back = random_below(80 * MS);
		struct agent_clock_exchange exchange = { host, host + to + back,
							 show(&guest_clock, host + to) };

		if (!agent_clock_usable(&clock, &exchange)) {
			clock = (struct agent_clock){ 0 };
			refused++;
		} else {
			agent_clock_add_imprecise(&clock, &exchange);
		}
		for (uint64_t event = 0; clock.count > 1 && event <= 20; event++) {
			uint64_t time = from + (host + to - from) * event / 20;

			check_event(&clock, &(struct event){ time, show(&guest_clock, time) },
				    &guest_clock);
		}
		taken += clock.count > 1;
		from = host + to;
		host += to + back + 500 * MS + random_below(500 * MS);
	}
	CHECK(taken > 300 && refused > 300);
}

TEST(agent_clock, vague_exchange_serves_if_all_before_it_has_a_place)
{
	srand(11);
	what_serves_gives_all_a_place((struct guest_clock){ .ppm = 0 });
	what_serves_gives_all_a_place((struct guest_clock){ .ppm = 3000 });
	what_serves_gives_all_a_place((struct guest_clock){ .ppm = -10000 });
}

/* The order of converted times is that of the guest's, with any exchanges between them. */
TEST(agent_clock, time_never_runs_backwards)
{
	struct agent_clock clock = { 0 };
	uint64_t host = 1000 * MS, guest = 50 * MS, last = 0, error;

	srand(10);
	while (clock.count < AGENT_CLOCK_EXCHANGES) {
		uint64_t before = host + random_below(30 * MS),
			 after = before + random_below(40 * MS);
		uint64_t shown = guest + 1 + random_below(60 * MS);

		if (take(&clock, before, after, shown) != AGENT_CLOCK_ACCEPTED)
			continue;
		host = after;
		guest = shown;
	}
	for (uint64_t time = 0; time < guest + 100 * MS; time += 1 + random_below(MS)) {
		uint64_t at = agent_clock_host_time(&clock, time, &error);

		CHECK(at >= last);
		last = at;
	}
}

TEST(agent_clock, hostile_times_do_no_harm)
{
	struct agent_clock clock = { 0 };
	uint64_t error, host = 0;

	srand(8);
	for (int i = 0; i < 100000; i++) {
		uint64_t before = host + random_below(1ull << 40);
		uint64_t after = before + random_below(1ull << (i % 40));
		uint64_t guest =
			i % 3 ? random_below(UINT64_MAX) << 32 : UINT64_MAX - random_below(3);

		if (take(&clock, before, after, i % 5 ? guest : before) == AGENT_CLOCK_ACCEPTED)
			host = after;
		if (clock.count)
			agent_clock_host_time(&clock, random_below(UINT64_MAX) << 20, &error);
		if (i % 1000 == 999 &&
		    agent_clock_end(&clock, host + random_below(1ull << 50), guest))
			clock.count = 0;
	}
}

static struct sideband_comm comm_of(uint32_t pid)
{
	return (struct sideband_comm){ .head = { .size = sizeof(struct sideband_comm),
						 .type = SIDEBAND_COMM,
						 .pid = pid,
						 .tid = pid } };
}

TEST(agent_queue, gives_what_it_was_given_in_its_order)
{
	struct agent_queue held = { 0 };
	uint32_t added = 0, taken = 0;
	uint64_t time;

	srand(11);
	CHECK(!agent_queue_first(&held, &time));
	for (int i = 0; i < 20000; i++) {
		struct sideband_comm comm = comm_of(added + 1);

		for (unsigned int n = (unsigned int)random_below(6); n;
		     n--, comm = comm_of(added + 1)) {
			REQUIRE(agent_queue_add(&held, added * 3, &comm.head));
			added++;
		}
		CHECK(!added || held.latest >= (added - 1) * 3ull || held.begin == held.end);
		for (unsigned int n = (unsigned int)random_below(7); n && taken < added; n--) {
			const struct sideband *first = agent_queue_first(&held, &time);

			REQUIRE(first != NULL);
			CHECK_EQUAL(time, taken * 3);
			CHECK_EQUAL(first->pid, ++taken);
			CHECK_EQUAL(first->size, sizeof(comm));
			agent_queue_pop(&held);
		}
	}
	agent_queue_clear(&held);
	CHECK(!agent_queue_first(&held, &time));
}

TEST(agent_queue, takes_no_more_than_it_may)
{
	struct sideband_comm comm = comm_of(1);
	struct agent_queue held = { 0 };
	size_t count = 0;

	while (agent_queue_add(&held, 1, &comm.head))
		count++;
	CHECK(held.capacity <= AGENT_QUEUE_MAX);
	CHECK(count >= AGENT_QUEUE_MAX / (sizeof(comm) + 8) - 1);
	while (count--)
		agent_queue_pop(&held);
	CHECK_EQUAL(held.capacity, 0);
	CHECK_EQUAL(held.latest, 0);
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

TEST(agent_tsc, is_reliable_if_the_kernel_lists_it)
{
	char directory[] = "/tmp/kvmscope-clocks.XXXXXX";

	REQUIRE(mkdtemp(directory));
	CHECK(!tsc_is_reliable(directory) && !tsc_is_clocksource(directory));
	clock_files_write(directory, "tsc hpet acpi_pm ", "hpet");
	CHECK(tsc_is_reliable(directory) && !tsc_is_clocksource(directory));
	clock_files_write(directory, "kvm-clock tsc", "tsc");
	CHECK(tsc_is_reliable(directory) && tsc_is_clocksource(directory));
	clock_files_write(directory, "tsc-early hpet ", "tsc-early");
	CHECK(!tsc_is_reliable(directory) && tsc_is_clocksource(directory));
	clock_files_write(directory, "hyperv_clocksource_tsc_page tsc ",
			  "hyperv_clocksource_tsc_page");
	CHECK(tsc_is_clocksource(directory));
	clock_files_remove(directory);
}

TEST(agent_tsc, marks_bound_the_times_between_them)
{
	struct tsc_mark first = tsc_mark_now(), middle = tsc_mark_now(), last;
	uint64_t low, high;

	if (!tsc_is_reliable(TSC_CLOCKSOURCES))
		SKIP("this host's kernel does not hold its TSC for a clock");
	for (volatile int i = 0; i < 1000000; i++)
		;
	last = tsc_mark_now();
	CHECK(tsc_time(&first, &last, middle.tsc + middle.width / 2, &low, &high));
	CHECK(low <= middle.time + middle.width && high + middle.width >= middle.time);
}
