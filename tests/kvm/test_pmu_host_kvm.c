/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated PMU on perf events of the vCPU's thread, as used by our own guest. Software events
 * replace hardware events, so their counts do not depend on the guest alone. The tests show that
 * they are counted and that they interrupt.
 */
#include <stdlib.h>

#include "tests/kvm/guest_run.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/software_perf.h"
#include "vmm/pmu/vcpu_pmu.h"

#define COUNTED 123456789

/* The count when it is first read. */
static int read_counted(void *context, int event, struct pmu_host_reading *reading)
{
	*reading = (struct pmu_host_reading){ .count = COUNTED, .enabled = 1, .running = 1 };
	return 0;
}

static int create_by_host(struct vcpu *vcpu, struct cpuid_table *table)
{
	return pmu_vcpu_create(vcpu, table, &software_perf);
}

static int create_counted(struct vcpu *vcpu, struct cpuid_table *table)
{
	static struct pmu_host_perf perf;

	perf = software_perf;
	perf.read = read_counted;
	return pmu_vcpu_create(vcpu, table, &perf);
}

static void on_end(void *context, struct vcpu *vcpu)
{
	pmu_vcpu_statistics(vcpu, context);
}

static void run_part(struct guest_run *run, struct pmu_vcpu_statistics *statistics,
		     const char *append,
		     int (*create)(struct vcpu *vcpu, struct cpuid_table *table))
{
	struct vcpu_pmu_operations by_host = pmu_vcpu_emulated;

	by_host.create = create;
	*run = (struct guest_run){
		.append = append,
		.pmu = &by_host,
		.hooks = { .vcpu_end = on_end, .context = statistics },
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

#define PERF_GUEST_REQUIRED()                                                                      \
	do {                                                                                       \
		GUEST_REQUIRED();                                                                  \
		if (software_perf_denied())                                                        \
			SKIP("perf_event_open of a software event: %s", software_perf_denied());   \
	} while (0)

TEST(pmu_vcpu_host, cycles_are_what_perf_counted)
{
	struct pmu_vcpu_statistics statistics;
	struct guest_run run;

	PERF_GUEST_REQUIRED();
	run_part(&run, &statistics, "program=pmu pmu=count loops=1000", create_counted);
	CHECK_EQUAL(printed(&run, "cycles "), COUNTED);
}

TEST(pmu_vcpu_host, perf_s_overflow_becomes_the_guest_s_PMI)
{
	static const char *const parts[] = {
		"program=pmu pmu=overflow pmis=20",
		"program=pmu pmu=overflow pmis=20 cpl=0",
		"program=pmu pmu=overflow pmis=20 by=vector",
	};

	PERF_GUEST_REQUIRED();
	for (unsigned int i = 0; i < 3; i++) {
		struct pmu_vcpu_statistics statistics;
		struct guest_run run;

		run_part(&run, &statistics, parts[i], create_by_host);
		CHECK_EQUAL(guest_run_value(&run), 0);
		CHECK_EQUAL(printed(&run, "pmis "), 20);
		CHECK_EQUAL(i == 2 ? statistics.vectors : statistics.nmis, 20);
	}
}
