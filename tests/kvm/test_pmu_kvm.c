/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated PMU as used by our own guests. tests/guests/program_pmu.c has the details of what is
 * expected.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/kvm/guest_run.h"
#include "tests/unit/shim/test.h"
#include "vmm/pmu/vcpu_pmu.h"

/* By the timer alone, even if the host has counters. */
static int create_by_time(struct vcpu *vcpu, struct cpuid_table *table)
{
	return pmu_vcpu_create(vcpu, table, NULL);
}

/* The state of the vCPU's thread and its PMU after the guest has ended. */
struct account {
	/* in ns; real time without the time in which the thread waited for a CPU */
	uint64_t cpu_time, real_time;
	struct pmu_vcpu_statistics statistics;
	struct pmu_state state;
};

static uint64_t time_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* ns for which the thread has waited for a CPU (Documentation/scheduler/sched-stats.rst). */
static uint64_t waited(void)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "re");
	unsigned long long time = 0;

	if (!file || fscanf(file, "%*u %llu", &time) != 1)
		FAIL_TEST(
			"/proc/thread-self/schedstat does not report how long a thread has waited");
	if (file)
		fclose(file);
	return time;
}

static void on_start(void *context, struct vcpu *vcpu)
{
	struct account *account = context;

	account->real_time = time_of(CLOCK_MONOTONIC) - waited();
	account->cpu_time = time_of(CLOCK_THREAD_CPUTIME_ID);
}

static void on_end(void *context, struct vcpu *vcpu)
{
	struct account *account = context;

	account->cpu_time = time_of(CLOCK_THREAD_CPUTIME_ID) - account->cpu_time;
	account->real_time = time_of(CLOCK_MONOTONIC) - waited() - account->real_time;
	pmu_vcpu_statistics(vcpu, &account->statistics);
	pmu_vcpu_save(vcpu, &account->state);
}

static struct vcpu_pmu_operations counting_by_time(void)
{
	struct vcpu_pmu_operations operations = pmu_vcpu_emulated;

	operations.create = create_by_time;
	return operations;
}

/* Runs the part of the program that APPEND selects and checks that it reports no failures. */
static void run_part(struct guest_run *run, struct account *account, const char *append)
{
	const struct vcpu_pmu_operations by_time = counting_by_time();

	*account = (struct account){ 0 };
	*run = (struct guest_run){
		.append = append,
		.pmu = &by_time,
		.hooks = { .vcpu_start = on_start, .vcpu_end = on_end, .context = account },
	};
	guest_run(run);
	if (guest_run_value(run) != 0)
		FAIL_TEST("%s: %s", append, run->console);
}

static uint64_t printed(const struct guest_run *run, const char *name)
{
	const char *at = strstr(run->console, name);

	if (at)
		return strtoull(at + strlen(name), NULL, 10);
	FAIL_TEST("no '%s' in: %s", name, run->console);
	return 0;
}

static void check_part(const char *append)
{
	struct account account;
	struct guest_run run;

	run_part(&run, &account, append);
	CHECK(account.statistics.msr_accesses > 0);
}

TEST(pmu_vcpu, registers_exist_and_fault_as_specified)
{
	GUEST_REQUIRED();
	check_part("program=pmu pmu=registers");
}

/* Number of ns in the guest's core cycles for this number of loops. */
static double counted_time(const char *append, struct account *account)
{
	struct guest_run run;

	run_part(&run, account, append);
	return (double)printed(&run, "cycles ") / (double)account->state.clock.core * 1e9;
}

/*
 * CPU time may exclude interrupts, and real time includes sleep: the cycles are between both. CPU
 * time is also used before and after the measured part, as measured with no loops.
 */
TEST(pmu_vcpu, core_cycles_are_the_time_that_the_guest_ran)
{
	struct account with, without;
	double counted, counted_without, cpu_time;

	GUEST_REQUIRED();
	counted_without = counted_time("program=pmu pmu=count loops=1", &without);
	counted = counted_time("program=pmu pmu=count loops=800000000", &with);
	cpu_time = (double)with.cpu_time - (double)without.cpu_time;
	if (counted - counted_without < 0.98 * cpu_time)
		FAIL_TEST("%.0f ns were counted in %.0f ns of CPU time", counted - counted_without,
			  cpu_time);
	if (counted > 1.01 * (double)with.real_time)
		FAIL_TEST("%.0f ns were counted in %llu ns", counted,
			  (unsigned long long)with.real_time);
}

/* 20 times 10 ms, almost all of it halted. */
TEST(pmu_vcpu, halted_time_counts_no_cycles)
{
	struct account account;

	GUEST_REQUIRED();
	CHECK(counted_time("program=pmu pmu=halt halts=20", &account) <
	      (double)account.real_time / 2);
}

static void on_end_of_two(void *context, struct vcpu *vcpu)
{
	struct pmu_vcpu_statistics *statistics = context;

	pmu_vcpu_statistics(vcpu, &statistics[vcpu->index]);
}

/* One for each period in the total of the cycles, which the guest counts in another counter. */
static void check_overflow(const char *append, bool by_vector)
{
	struct account account;
	struct guest_run run;
	uint64_t pmis;

	run_part(&run, &account, append);
	pmis = printed(&run, "pmis ");
	CHECK_EQUAL(pmis, 50);
	if (account.state.model == PMU_INTEL)
		CHECK_EQUAL(printed(&run, "periods "), pmis + printed(&run, "missed "));
	CHECK_EQUAL(by_vector ? account.statistics.vectors : account.statistics.nmis, pmis);
	CHECK_EQUAL(by_vector ? account.statistics.nmis : account.statistics.vectors, 0);
}

TEST(pmu_vcpu, overflow_is_an_nmi_also_with_interrupts_off)
{
	GUEST_REQUIRED();
	check_overflow("program=pmu pmu=overflow", false);
	check_overflow("program=pmu pmu=overflow cpl=0", false);
}

TEST(pmu_vcpu, overflow_is_a_fixed_vector)
{
	GUEST_REQUIRED();
	check_overflow("program=pmu pmu=overflow by=vector", true);
	check_overflow("program=pmu pmu=overflow by=vector cpl=0", true);
}

/*
 * An interrupt of the PIT could arrive while the LAPIC's state is written, so the mask bit is not
 * touched.
 */
TEST(pmu_vcpu, overflow_leaves_the_pit_its_interrupts)
{
	GUEST_REQUIRED();
	check_overflow("program=pmu pmu=overflow pit=open by=vector", true);
}

/*
 * At the address that Linux uses, and one whose mask bit is set without the rest of the LAPIC's
 * state.
 */
TEST(pmu_vcpu, overflow_works_with_the_lvtpc_of_an_x2apic)
{
	GUEST_REQUIRED();
	check_overflow("program=pmu pmu=overflow apic=x2", false);
	check_overflow("program=pmu pmu=overflow apic=x2 by=vector", true);
}

/* Each boot has its own vCPU thread, and so its own overflow timer. */
TEST(pmu_vcpu, overflow_works_after_a_reset)
{
	const struct vcpu_pmu_operations by_time = counting_by_time();
	struct account account = { 0 };
	struct guest_run run = {
		.append = "program=pmu pmu=overflow",
		.pmu = &by_time,
		.boots = 2,
		.hooks = { .vcpu_end = on_end, .context = &account },
	};

	GUEST_REQUIRED();
	guest_run(&run);
	CHECK_EQUAL(guest_run_value(&run), 0);
	CHECK_EQUAL(account.statistics.nmis, 2 * printed(&run, "pmis "));
}

static void check_others(const char *append)
{
	const struct vcpu_pmu_operations by_time = counting_by_time();
	struct pmu_vcpu_statistics statistics[2];
	struct guest_run run = {
		.append = append,
		.cpus = 2,
		.pmu = &by_time,
		.hooks = { .vcpu_end = on_end_of_two, .context = statistics },
	};

	guest_run(&run);
	if (guest_run_value(&run) != 0)
		FAIL_TEST("%s: %s", append, run.console);
	CHECK_EQUAL(statistics[0].nmis + statistics[0].vectors, 0);
	CHECK_EQUAL(statistics[1].nmis + statistics[1].vectors, 50);
}

TEST(pmu_vcpu, each_vcpu_has_its_own_pmu)
{
	GUEST_REQUIRED();
	check_others("program=pmu pmu=others cpl=0");
	check_others("program=pmu pmu=others cpl=0 by=vector apic=x2");
}

TEST(pmu_vcpu, masked_lvtpc_suppresses_the_pmi)
{
	struct account account;
	struct guest_run run;

	GUEST_REQUIRED();
	run_part(&run, &account, "program=pmu pmu=masked");
	CHECK_EQUAL(account.statistics.masked, 1);
	CHECK_EQUAL(account.statistics.nmis, 0);
}

TEST(pmu_vcpu, counters_freeze_at_the_pmi_and_restart)
{
	GUEST_REQUIRED();
	if (!__builtin_cpu_is("intel"))
		SKIP("not an Intel processor: its guests' PMU does not freeze");
	check_part("program=pmu pmu=freeze");
}
