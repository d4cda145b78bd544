// SPDX-License-Identifier: Apache-2.0
/* The timer of a PMU's overflows, by perf's cpu-clock and by the POSIX timer that stands in for it. */
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/unit/shim/test.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/pmu/pmu_timer.h"

#define MS 1000000ull

/* perf's timer and the thread's time are two clocks: how much one may be before the other. */
#define SKEW (MS / 10)

/* The POSIX timer's, and one is no proof of when the next tick comes. */
#define PATIENCE (2000 * MS)

static volatile sig_atomic_t kicks;

static void on_kick(int signal)
{
	kicks++;
}

/* A timer, and the kick's signal as this test's own until the end. */
struct setting {
	struct pmu_timer timer;
	struct sigaction before;
};

/* No file can be opened, so no perf event. */
static void open_without_perf(struct pmu_timer *timer)
{
	struct rlimit before, none;

	REQUIRE_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = before.rlim_max };
	REQUIRE_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK_EQUAL(pmu_timer_open(timer), 0);
	REQUIRE_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
	CHECK_EQUAL(timer->event, -1);
}

static void set_up(struct setting *setting, bool perf)
{
	const struct sigaction action = { .sa_handler = on_kick, .sa_flags = SA_RESTART };

	kicks = 0;
	REQUIRE_EQUAL(sigaction(VCPU_KICK_SIGNAL, &action, &setting->before), 0);
	if (perf)
		CHECK_EQUAL(pmu_timer_open(&setting->timer), 0);
	else
		open_without_perf(&setting->timer);
}

static void tear_down(struct setting *setting)
{
	pmu_timer_close(&setting->timer);
	sigaction(VCPU_KICK_SIGNAL, &setting->before, NULL);
}

/* Uses CPU time until a kick, or END. The time then. */
static uint64_t burn_until(uint64_t end)
{
	uint64_t now;

	do
		now = pmu_thread_time();
	while (!kicks && now < end);
	return now;
}

static void check_comes_at_deadline(struct pmu_timer *timer, uint64_t after)
{
	const uint64_t now = pmu_thread_time(), deadline = now + after;
	uint64_t kicked;

	kicks = 0;
	CHECK_EQUAL(pmu_timer_arm(timer, now, deadline), 0);
	CHECK(timer->armed);
	kicked = burn_until(deadline + PATIENCE);
	CHECK(kicks > 0);
	CHECK(kicked + SKEW >= deadline);
}

static void check(bool perf)
{
	const struct timespec sleep = { .tv_nsec = 30 * MS };
	struct setting setting;
	uint64_t now;

	set_up(&setting, perf);
	check_comes_at_deadline(&setting.timer, 5 * MS);
	check_comes_at_deadline(&setting.timer, 20 * MS); /* it has come once: another one */

	/* Another deadline replaces the one before. */
	now = pmu_thread_time();
	CHECK_EQUAL(pmu_timer_arm(&setting.timer, now, now + 5 * MS), 0);
	check_comes_at_deadline(&setting.timer, 40 * MS);

	/* A thread that sleeps uses no CPU time. */
	now = pmu_thread_time();
	CHECK_EQUAL(pmu_timer_arm(&setting.timer, now, now + 20 * MS), 0);
	kicks = 0;
	nanosleep(&sleep, NULL);
	CHECK_EQUAL(kicks, 0);

	CHECK_EQUAL(pmu_timer_disarm(&setting.timer), 0);
	CHECK(!setting.timer.armed);
	kicks = 0;
	burn_until(pmu_thread_time() + 40 * MS);
	CHECK_EQUAL(kicks, 0);
	tear_down(&setting);
}

TEST(pmu_timer, perf_s_clock_kicks_at_the_deadline)
{
	struct setting setting;
	bool perf;

	set_up(&setting, true);
	perf = setting.timer.event >= 0;
	tear_down(&setting);
	if (!perf)
		SKIP("the host lets us have no cpu-clock event");
	check(true);
}

TEST(pmu_timer, posix_timer_does_where_there_are_no_perf_events)
{
	check(false);
}
