/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of a PMU and its overflow timer, with perf's cpu-clock and with the fallback. A busy
 * host takes CPU time away, and interrupts use any amount of it. So the tests do not check how late
 * anything comes, but bounds that delays can only increase.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/unit/shim/test.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/pmu/pmu_time.h"

#define MS 1000000ull

/* On a CPU. The POSIX timer fires at ticks, and one tick does not determine the next. */
#define PATIENCE (2000 * MS)

static volatile sig_atomic_t kicks;

static void on_kick(int signal)
{
	kicks++;
}

/* A clock and a timer. The kick's signal belongs to this test until the end. */
struct setting {
	struct cpu_clock clock;
	struct pmu_timer timer;
	struct sigaction before;
};

/* No file can be opened, so no perf event. */
static void forbid_files(struct rlimit *before)
{
	struct rlimit none;

	REQUIRE_EQUAL(getrlimit(RLIMIT_NOFILE, before), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = before->rlim_max };
	REQUIRE_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void allow_files(const struct rlimit *before)
{
	REQUIRE_EQUAL(setrlimit(RLIMIT_NOFILE, before), 0);
}

static void set_up(struct setting *setting, bool perf)
{
	const struct sigaction action = { .sa_handler = on_kick, .sa_flags = SA_RESTART };
	struct rlimit limit;

	kicks = 0;
	REQUIRE_EQUAL(sigaction(VCPU_KICK_SIGNAL, &action, &setting->before), 0);
	if (!perf)
		forbid_files(&limit);
	cpu_clock_open(&setting->clock);
	CHECK_EQUAL(pmu_timer_open(&setting->timer), 0);
	if (perf)
		return;
	allow_files(&limit);
	CHECK_EQUAL(setting->clock.event, -1);
	CHECK_EQUAL(setting->timer.event, -1);
}

static void tear_down(struct setting *setting)
{
	pmu_timer_close(&setting->timer);
	cpu_clock_close(&setting->clock);
	sigaction(VCPU_KICK_SIGNAL, &setting->before, NULL);
}

static bool perf_is_possible(void)
{
	struct setting setting;
	bool possible;

	set_up(&setting, true);
	possible = setting.timer.event >= 0 && setting.clock.event >= 0;
	tear_down(&setting);
	return possible;
}

#define PERF_REQUIRED()                                                                            \
	do {                                                                                       \
		if (!perf_is_possible())                                                           \
			SKIP("the host does not allow cpu-clock events");                          \
	} while (0)

/* Waits for a kick, or until END by CLOCK. Returns the time. */
static uint64_t burn_until(const struct cpu_clock *clock, uint64_t end)
{
	uint64_t now;

	do
		now = cpu_clock_now(clock);
	while (!kicks && now < end);
	return now;
}

static void burn_until_end(const struct cpu_clock *clock, uint64_t end)
{
	while (cpu_clock_now(clock) < end)
		;
}

/* The timer uses another clock. They do not differ by half. */
static bool is_time_for(uint64_t passed, uint64_t wait)
{
	return passed >= wait / 2;
}

static void check_fires_after(struct setting *setting, uint64_t wait)
{
	const uint64_t begin = cpu_clock_now(&setting->clock);
	uint64_t kicked;

	kicks = 0;
	CHECK_EQUAL(pmu_timer_arm(&setting->timer, wait), 0);
	kicked = burn_until(&setting->clock, begin + wait + PATIENCE);
	CHECK(kicks > 0);
	CHECK(is_time_for(kicked - begin, wait));
}

/* It sleeps most of the time, even if each wake-up is delayed. */
static void sleep_for(unsigned int ms)
{
	const struct timespec time = { .tv_nsec = MS };

	for (unsigned int i = 0; i < ms; i++)
		nanosleep(&time, NULL);
}

static void check_timer(bool perf)
{
	struct setting setting;
	uint64_t begin;

	set_up(&setting, perf);
	check_fires_after(&setting, 5 * MS);
	check_fires_after(&setting, 20 * MS); /* the first has fired: this is another one */

	/* It fires once. */
	kicks = 0;
	CHECK_EQUAL(pmu_timer_arm(&setting.timer, 0), 0);
	burn_until_end(&setting.clock, cpu_clock_now(&setting.clock) + 50 * MS);
	CHECK_EQUAL(kicks, 1);

	/* A new timer replaces the previous one. */
	CHECK_EQUAL(pmu_timer_arm(&setting.timer, 5 * MS), 0);
	check_fires_after(&setting, 40 * MS);

	/* A sleeping thread uses no CPU. */
	begin = cpu_clock_now(&setting.clock);
	CHECK_EQUAL(pmu_timer_arm(&setting.timer, 200 * MS), 0);
	kicks = 0;
	sleep_for(250);
	CHECK(kicks == 0 || is_time_for(cpu_clock_now(&setting.clock) - begin, 200 * MS));

	CHECK_EQUAL(pmu_timer_disarm(&setting.timer), 0);
	kicks = 0;
	burn_until(&setting.clock, cpu_clock_now(&setting.clock) + 40 * MS);
	CHECK_EQUAL(kicks, 0);
	tear_down(&setting);
}

TEST(pmu_timer, perf_s_clock_kicks_after_the_time)
{
	PERF_REQUIRED();
	check_timer(true);
}

TEST(pmu_timer, posix_timer_replaces_perf_events)
{
	check_timer(false);
}

static uint64_t time_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000 * MS + (uint64_t)time.tv_nsec;
}

/* It is not less than the CPU time within it, and not more than the time around it. */
TEST(cpu_clock, is_between_cpu_time_and_real_time)
{
	struct setting setting;
	uint64_t real, clock, thread;

	PERF_REQUIRED();
	set_up(&setting, true);
	real = time_of(CLOCK_MONOTONIC);
	clock = cpu_clock_now(&setting.clock);
	thread = time_of(CLOCK_THREAD_CPUTIME_ID);
	while (time_of(CLOCK_THREAD_CPUTIME_ID) - thread < 50 * MS)
		;
	thread = time_of(CLOCK_THREAD_CPUTIME_ID) - thread;
	clock = cpu_clock_now(&setting.clock) - clock;
	real = time_of(CLOCK_MONOTONIC) - real;
	if (clock < thread - thread / 100 || clock > real + real / 100)
		FAIL_TEST("%.1f ms; %.1f ms of CPU time, in %.1f ms", (double)clock / 1e6,
			  (double)thread / 1e6, (double)real / 1e6);

	real = time_of(CLOCK_MONOTONIC);
	clock = cpu_clock_now(&setting.clock);
	sleep_for(50);
	clock = cpu_clock_now(&setting.clock) - clock;
	real = time_of(CLOCK_MONOTONIC) - real;
	CHECK(clock < real / 2);
	tear_down(&setting);
}

#define MSR_SELECT      0xc0010000
#define MSR_COUNTER     0xc0010004
#define CORE_CYCLES     0x530076ull /* with a PMI */
#define CYCLES_TO_GO(n) ((1ull << PMU_WIDTH) - (n))
#define CYCLES_PER_MS   MS

static void count_from(struct pmu *pmu, uint64_t value)
{
	const struct pmu_clock clock = { .core = 1000 * CYCLES_PER_MS, .reference = 1, .bus = 1 };

	REQUIRE_EQUAL(pmu_init(pmu, PMU_AMD_LEGACY, &clock, NULL, NULL), 0);
	REQUIRE(pmu_write_msr(pmu, MSR_COUNTER, value));
	REQUIRE(pmu_write_msr(pmu, MSR_SELECT, CORE_CYCLES));
}

/* Runs the "guest" until its overflow, and counts the kicks before it. */
static unsigned int run_to_overflow(struct pmu_time *time, struct pmu *pmu, uint64_t end)
{
	unsigned int left = 0;
	uint64_t late;
	bool overflow;

	do {
		kicks = 0;
		burn_until(&time->clock, end);
		CHECK(kicks > 0);
		overflow = pmu_time_leave(time, pmu, &late);
		left++;
		CHECK_EQUAL(pmu_time_enter(time, pmu, left), 0);
	} while (!overflow && cpu_clock_now(&time->clock) < end);
	CHECK(overflow);
	CHECK_EQUAL(late, pmu->state.general[0]); /* a cycle is 1 ns */
	return left;
}

/* The timer's clock runs ten times too fast: each early kick is followed by one for the rest. */
static void check_rest(bool perf)
{
	struct pmu_time time;
	struct rlimit limit;
	struct setting setting;
	struct pmu pmu;

	set_up(&setting, true);
	count_from(&pmu, CYCLES_TO_GO(40 * CYCLES_PER_MS));
	pmu_time_open(&time, &pmu);
	if (!perf)
		forbid_files(&limit);
	REQUIRE_EQUAL(pmu_time_enter(&time, &pmu, 0), 0);
	if (!perf)
		allow_files(&limit);
	REQUIRE_EQUAL(pmu_timer_arm(&time.timer, 4 * MS), 0);
	/* One for the early kick, one for the rest, some for a clock that is slightly off. */
	CHECK(run_to_overflow(&time, &pmu, cpu_clock_now(&time.clock) + PATIENCE) < 8);
	pmu_time_close(&time);
	tear_down(&setting);
}

TEST(pmu_time, early_kick_is_followed_by_one_for_the_rest)
{
	PERF_REQUIRED();
	check_rest(true);
}

TEST(pmu_time, early_kick_is_followed_by_one_for_the_rest_without_perf)
{
	check_rest(false);
}

/* Otherwise it costs a system call with each entry until it fires. */
TEST(pmu_time, distant_timer_is_disarmed_when_nothing_counts)
{
	struct pmu_time time;
	struct setting setting;
	struct pmu pmu;
	uint64_t late;

	set_up(&setting, true);
	count_from(&pmu, CYCLES_TO_GO(100000 * CYCLES_PER_MS));
	pmu_time_open(&time, &pmu);
	CHECK_EQUAL(pmu_time_enter(&time, &pmu, 0), 0);
	CHECK(time.armed);
	CHECK(!pmu_time_leave(&time, &pmu, &late));
	CHECK(pmu_write_msr(&pmu, MSR_SELECT, 0));
	pmu_time_changed(&time, &pmu);
	CHECK_EQUAL(pmu_time_enter(&time, &pmu, 0), 0);
	CHECK(!time.armed);
	pmu_time_close(&time);
	tear_down(&setting);
}
