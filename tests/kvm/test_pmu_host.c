// SPDX-License-Identifier: Apache-2.0
/*
 * The emulated PMU counting by perf events of the vCPU's thread, as our own
 * guest meets it. Software events stand for hardware's, so that what they count is not the
 * guest's alone: what is shown is that they are counted, and interrupt.
 */
#include <stdlib.h>

#include "tests/kvm/guest_run.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/software_perf.h"
#include "vmm/pmu/pmu_timer.h"
#include "vmm/pmu/pmu_vcpu.h"

static int create_by_host(struct vcpu *vcpu, struct cpuid_table *table)
{
	return pmu_vcpu_create(vcpu, table, &software_perf);
}

struct account {
	uint64_t started, cpu_time; /* of the vCPU's thread, ns */
	struct pmu_vcpu_statistics statistics;
};

static void on_start(void *context, struct vcpu *vcpu)
{
	((struct account *)context)->started = pmu_thread_time();
}

static void on_end(void *context, struct vcpu *vcpu)
{
	struct account *account = context;

	account->cpu_time = pmu_thread_time() - account->started;
	pmu_vcpu_statistics(vcpu, &account->statistics);
}

static void run_part(struct guest_run *run, struct account *account, const char *append)
{
	struct vcpu_pmu_operations by_host = pmu_vcpu_emulated;

	by_host.create = create_by_host;
	*account = (struct account){ 0 };
	*run = (struct guest_run){
		.append = append,
		.pmu = &by_host,
		.hooks = { .vcpu_start = on_start, .vcpu_end = on_end, .context = account },
	};
	guest_run(run);
	if (guest_run_value(run) < 0)
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

#define GUEST_REQUIRED()                                                                                     \
	do {                                                                                                 \
		if (!guest_run_possible())                                                                   \
			SKIP("/dev/kvm can not be opened");                                                  \
		if (software_perf_denied())                                                                  \
			SKIP("perf_event_open of a software event: %s", software_perf_denied());             \
	} while (0)

/* The task's clock counts one for each ns, which no frequency of a TSC does here by chance. */
TEST(pmu_vcpu_host, cycles_are_what_perf_counted)
{
	struct account account;
	struct guest_run run;
	uint64_t counted;

	GUEST_REQUIRED();
	run_part(&run, &account, "program=pmu pmu=count loops=500000000");
	counted = printed(&run, "cycles ");
	CHECK(counted <= account.cpu_time);
	CHECK(counted >= account.cpu_time / 2);
}

TEST(pmu_vcpu_host, perf_s_overflow_becomes_the_guest_s_PMI)
{
	static const char *const parts[] = {
		"program=pmu pmu=overflow pmis=20",
		"program=pmu pmu=overflow pmis=20 cpl=0",
		"program=pmu pmu=overflow pmis=20 by=vector",
	};

	GUEST_REQUIRED();
	for (unsigned int i = 0; i < 3; i++) {
		struct account account;
		struct guest_run run;

		run_part(&run, &account, parts[i]);
		CHECK_EQUAL(guest_run_value(&run), 0);
		CHECK_EQUAL(printed(&run, "pmis "), 20);
		CHECK_EQUAL(i == 2 ? account.statistics.vectors : account.statistics.nmis, 20);
	}
}
