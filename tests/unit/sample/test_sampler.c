/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the sampler that need no guest: its clocks, and the snapshot of registers. */
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/sample/clock_source.h"
#include "vmm/sample/vcpu_snapshot.h"
#include "vmm/sample/vm_view.h"

#define MILLISECOND 1000000ull

static volatile uint64_t expirations;

static void on_expiration(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	(void)context;
	expirations += 1 + (information->si_code == SI_TIMER ? information->si_overrun : 0);
}

static uint64_t time_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void use_cpu(uint64_t duration)
{
	uint64_t end = time_of(CLOCK_THREAD_CPUTIME_ID) + duration;

	while (time_of(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void catch_expirations(struct sigaction *before)
{
	struct sigaction action = { .sa_sigaction = on_expiration,
				    .sa_flags = SA_SIGINFO | SA_RESTART };

	expirations = 0;
	sigaction(VCPU_SAMPLE_SIGNAL, &action, before);
}

TEST(sampling_clock, refuses_frequencies_out_of_range)
{
	struct sampling_clock *clock;

	CHECK_EQUAL(sampling_clock_create(&clock, SAMPLING_CLOCK_CPU, 0), -22);
	CHECK_EQUAL(sampling_clock_create(&clock, SAMPLING_CLOCK_WALL, SAMPLING_FREQUENCY_MAX + 1),
		    -22);
	CHECK(strstr(error_message(), "10001 Hz"));
}

TEST(sampling_clock, cpu_clock_counts_what_the_thread_used)
{
	struct sigaction before;
	struct sampling_clock *clock;
	uint64_t taken;

	catch_expirations(&before);
	REQUIRE_EQUAL(sampling_clock_create(&clock, SAMPLING_CLOCK_CPU, 1000), 0);
	use_cpu(5 * MILLISECOND);
	CHECK_EQUAL(expirations, 0);
	REQUIRE_EQUAL(sampling_clock_start(clock), 0);
	use_cpu(100 * MILLISECOND);
	sampling_clock_stop(clock);
	taken = sampling_clock_consume(clock, expirations, time_of(CLOCK_MONOTONIC_RAW));
	CHECK(taken > 80 * MILLISECOND && taken < 120 * MILLISECOND);
	CHECK_EQUAL(sampling_clock_consume(clock, expirations, time_of(CLOCK_MONOTONIC_RAW)), 0);
	sampling_clock_destroy(clock);
	sigaction(VCPU_SAMPLE_SIGNAL, &before, NULL);
}

TEST(sampling_clock, frequency_can_change_while_it_ticks)
{
	struct sigaction before;
	struct sampling_clock *clock;
	uint64_t taken;

	catch_expirations(&before);
	REQUIRE_EQUAL(sampling_clock_create(&clock, SAMPLING_CLOCK_CPU, 100), 0);
	REQUIRE_EQUAL(sampling_clock_start(clock), 0);
	use_cpu(30 * MILLISECOND);
	sampling_clock_consume(clock, expirations, time_of(CLOCK_MONOTONIC_RAW));
	CHECK_EQUAL(sampling_clock_set_frequency(clock, 0), -22);
	REQUIRE_EQUAL(sampling_clock_set_frequency(clock, 4000), 0);
	use_cpu(100 * MILLISECOND);
	sampling_clock_stop(clock);
	CHECK_EQUAL(sampling_clock_period(clock), MILLISECOND / 4);
	CHECK(expirations > 40); /* at 100 Hz at most 13 would have come; a busy host delays some */
	taken = sampling_clock_consume(clock, expirations, time_of(CLOCK_MONOTONIC_RAW));
	CHECK(taken > 70 * MILLISECOND && taken < 130 * MILLISECOND);
	sampling_clock_destroy(clock);
	sigaction(VCPU_SAMPLE_SIGNAL, &before, NULL);
}

TEST(sampling_clock, merged_wall_expirations_are_counted)
{
	struct sigaction before;
	struct sampling_clock *clock;
	sigset_t sample, old;
	uint64_t taken;

	catch_expirations(&before);
	REQUIRE_EQUAL(sampling_clock_create(&clock, SAMPLING_CLOCK_WALL, 1000), 0);
	sigemptyset(&sample);
	sigaddset(&sample, VCPU_SAMPLE_SIGNAL);
	pthread_sigmask(SIG_BLOCK, &sample, &old);
	REQUIRE_EQUAL(sampling_clock_start(clock), 0);
	usleep(50 * 1000);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	sampling_clock_stop(clock);
	taken = sampling_clock_consume(clock, expirations, time_of(CLOCK_MONOTONIC_RAW));
	CHECK(taken >= 49 * MILLISECOND);
	sampling_clock_destroy(clock);
	sigaction(VCPU_SAMPLE_SIGNAL, &before, NULL);
}

TEST(sampling_clock, timer_in_place_of_a_perf_event_gives_cpu_time)
{
	struct sampling_clock clock = { .operations = &sampling_clock_cpu_timer,
					.period = MILLISECOND,
					.thread = gettid() };
	struct sigaction before;
	uint64_t taken, idle;

	catch_expirations(&before);
	REQUIRE_EQUAL(clock.operations->open(&clock), 0);
	REQUIRE_EQUAL(sampling_clock_start(&clock), 0);
	use_cpu(50 * MILLISECOND);
	taken = sampling_clock_consume(&clock, expirations, time_of(CLOCK_MONOTONIC_RAW));
	CHECK(taken >= 50 * MILLISECOND && taken % MILLISECOND == 0);
	for (uint64_t end = time_of(CLOCK_MONOTONIC) + 50 * MILLISECOND;
	     time_of(CLOCK_MONOTONIC) < end;)
		usleep(50 * 1000);
	idle = sampling_clock_consume(&clock, expirations, time_of(CLOCK_MONOTONIC_RAW));
	CHECK(expirations > 50);
	CHECK(idle < 25 * MILLISECOND);
	clock.operations->close(&clock);
	sigaction(VCPU_SAMPLE_SIGNAL, &before, NULL);
}

TEST(sampling_clock, missing_periods_are_counted)
{
	struct sigaction before;
	struct sampling_clock *clock;
	uint64_t taken;

	catch_expirations(&before);
	REQUIRE_EQUAL(sampling_clock_create(&clock, SAMPLING_CLOCK_CPU, 1000), 0);
	REQUIRE_EQUAL(sampling_clock_start(clock), 0);
	use_cpu(50 * MILLISECOND);
	sampling_clock_stop(clock);
	/* As if only one of them had arrived. */
	taken = sampling_clock_consume(clock, 1, time_of(CLOCK_MONOTONIC_RAW));
	CHECK(taken >= 50 * MILLISECOND && taken < 60 * MILLISECOND);
	sampling_clock_destroy(clock);
	sigaction(VCPU_SAMPLE_SIGNAL, &before, NULL);
}

/* A clock that ticks while the thread uses no CPU time, as when the host itself has lost its
 * CPU. */
TEST(sampling_clock, stolen_time_is_not_counted)
{
	struct sigaction before;
	struct sampling_clock *clock;
	uint64_t begin, taken = 0;

	catch_expirations(&before);
	REQUIRE_EQUAL(sampling_clock_create(&clock, SAMPLING_CLOCK_CPU, 100), 0);
	begin = time_of(CLOCK_THREAD_CPUTIME_ID);
	REQUIRE_EQUAL(sampling_clock_start(clock), 0);
	for (uint64_t i = 1; i <= 50; i++) {
		usleep(10000);
		taken += sampling_clock_consume(clock, i, time_of(CLOCK_MONOTONIC_RAW));
	}
	sampling_clock_stop(clock);
	CHECK(taken <= time_of(CLOCK_THREAD_CPUTIME_ID) - begin + 10 * MILLISECOND);
	CHECK_EQUAL(taken % (10 * MILLISECOND), 0);
	sampling_clock_destroy(clock);
	sigaction(VCPU_SAMPLE_SIGNAL, &before, NULL);
}

static struct snapshot shared_snapshot;

static void *write_snapshots(void *unused)
{
	struct guest_registers registers;

	(void)unused;
	for (uint64_t i = 1; i < 200000; i++) {
		memset(&registers, 0, sizeof(registers));
		registers.rip = i;
		registers.r15 = ~i;
		registers.gs_base = i;
		registers.paging.cr3 = i;
		registers.cpl = i % 4;
		snapshot_write(&shared_snapshot, &registers);
	}
	return NULL;
}

TEST(snapshot, is_whole_while_it_is_written)
{
	struct guest_registers registers;
	pthread_t writer;
	uint64_t torn = 0;

	memset(&shared_snapshot, 0, sizeof(shared_snapshot));
	CHECK(!snapshot_read(&shared_snapshot, &registers));
	pthread_create(&writer, NULL, write_snapshots, NULL);
	do {
		if (!snapshot_read(&shared_snapshot, &registers))
			continue;
		torn += registers.r15 != ~registers.rip || registers.gs_base != registers.rip ||
			registers.paging.cr3 != registers.rip || registers.cpl != registers.rip % 4;
	} while (__atomic_load_n(&shared_snapshot.sequence, __ATOMIC_RELAXED) < 2 * 199999);
	pthread_join(writer, NULL);
	CHECK_EQUAL(torn, 0);
}

TEST(vm_view, shows_the_vm_s_memory)
{
	struct vm_view view;
	struct memory memory;
	uint64_t value = 0;

	REQUIRE_EQUAL(memory_create(&memory, 2 << 20), 0);
	vm_view_init(&view, &memory);
	CHECK_EQUAL(memory_write(&memory, 0x1ff8, &(uint64_t){ 0x1234 }, 8), 0);
	CHECK_EQUAL(guest_read_physical(&view.view, 0x1ff8, &value, 8), 0);
	CHECK_EQUAL(value, 0x1234);
	CHECK(guest_read_physical(&view.view, 2 << 20, &value, 8) < 0);
	memory_destroy(&memory);
}
