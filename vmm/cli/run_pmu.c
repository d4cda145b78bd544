/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_pmu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/machine/host_probe.h"
#include "vmm/pmu/pmu_absent.h"
#include "vmm/pmu/pmu_kernel.h"
#include "vmm/pmu/rdpmc_traps.h"
#include "vmm/pmu/vcpu_pmu.h"
#include "vmm/sample/vm_view.h"

struct run_pmu_traps {
	bool int3; /* KVM exits for INT3 */
	struct vm_view view;
	struct rdpmc_traps *traps; /* NULL until it is started, and without a PMU */
	bool none;
	struct pmu_absent absent; /* with none */
};

/* ROW gets the reason if not. */
static bool kernel_counts(struct probe_row *row)
{
	return !probe_one("pmu.guest", row) && row->state == PROBE_YES;
}

static int create(struct run_pmu_traps **traps)
{
	*traps = calloc(1, sizeof(**traps));
	return *traps ? 0 : error_set(-ENOMEM, "no memory for the guest's PMU");
}

static int emulate(struct run_pmu_traps **traps, struct machine_options *machine, bool int3)
{
	int error = create(traps);

	if (error)
		return error;
	(*traps)->int3 = int3;
	machine->pmu = &rdpmc_traps_pmu;
	return 0;
}

static bool exits_for_int3(void)
{
	struct probe_row row = { .id = NULL };

	return !probe_one("debug.int3", &row) && row.works & PROBE_IN_KERNEL;
}

/*
 * RDPMC included: a guest that did not use its PMU so far must not fail because it cannot read it.
 */
static bool can_emulate_all(struct probe_row *row)
{
	return !probe_one("pmu.emulated", row) && row->state == PROBE_YES;
}

static int set_none(struct run_pmu_traps **traps, struct machine_options *machine,
		    const struct probe_row *row)
{
	static const char no_int3[] =
		"Linux could not read it, as this host's KVM does not exit for INT3; a "
		"guest that reads it by RDMSR can use --pmu emulated";
	struct pmu_absent *absent;
	int error = create(traps);

	if (error)
		return error;
	(*traps)->none = true;
	absent = &(*traps)->absent;
	if (row->state == PROBE_PARTLY)
		snprintf(absent->reason, sizeof(absent->reason), "%s", no_int3);
	else
		snprintf(absent->reason, sizeof(absent->reason), "%s; see kvmscope doctor",
			 row->detail);
	machine->pmu = &pmu_absent_operations;
	return 0;
}

static int join_best(struct run_pmu_traps **traps, struct machine_options *machine,
		     struct probe_row *row)
{
	if (kernel_counts(row)) {
		machine->pmu = &pmu_kernel;
		return 0;
	}
	if (can_emulate_all(row))
		return emulate(traps, machine, true);
	return set_none(traps, machine, row);
}

static int join_kernel(struct machine_options *machine, struct probe_row *row)
{
	if (!kernel_counts(row))
		return error_set(-ENOTSUP, "--pmu kernel: this host's KVM provides no counters: %s",
				 row->detail);
	machine->pmu = &pmu_kernel;
	return 0;
}

int run_pmu_join(struct run_pmu_traps **traps, enum run_pmu choice, struct machine_options *machine)
{
	struct probe_row row = { .detail = "it could not be probed" };

	*traps = NULL;
	switch (choice) {
	case RUN_PMU_AUTO:
		return join_best(traps, machine, &row);
	case RUN_PMU_KERNEL:
		return join_kernel(machine, &row);
	case RUN_PMU_EMULATED:
		return emulate(traps, machine, exits_for_int3());
	case RUN_PMU_OFF:
		break;
	}
	return 0;
}

int run_pmu_start(struct run_pmu_traps *traps, struct machine *machine)
{
	struct rdpmc_traps_options options = { .vm = machine_vm(machine),
					       .registers = vm_view_registers };

	if (!traps)
		return 0;
	if (traps->none) {
		options.vm->pmu_absent = &traps->absent;
		return 0;
	}
	vm_view_init(&traps->view, &options.vm->memory);
	options.view = &traps->view.view;
	options.int3 = traps->int3;
	return rdpmc_traps_create(&traps->traps, &options);
}

static void summarize_interrupts(const struct vm *vm)
{
	uint64_t count = 0, late = 0, most = 0;

	for (unsigned int i = 0; i < vm->vcpu_count; i++) {
		struct pmu_vcpu_statistics statistics;

		pmu_vcpu_statistics(vm->vcpus[i], &statistics);
		count += statistics.nmis + statistics.vectors + statistics.masked;
		late += statistics.late_ns;
		most = statistics.late_ns_max > most ? statistics.late_ns_max : most;
	}
	if (count)
		log_info(
			"the guest's PMU: %llu overflows were reported, %.0f us late on average and %.0f us at most",
			(unsigned long long)count, (double)late / 1e3 / (double)count,
			(double)most / 1e3);
}

static void summarize_rdpmc(const struct run_pmu_traps *traps)
{
	struct rdpmc_traps_statistics statistics;

	rdpmc_traps_statistics(traps->traps, &statistics);
	if (!statistics.completed)
		return;
	log_info(
		"the guest's PMU: RDPMC was emulated %llu times; %llu INT3 of the guest itself were passed on",
		(unsigned long long)statistics.completed,
		(unsigned long long)statistics.guest_breakpoints);
}

void run_pmu_summarize(const struct run_pmu_traps *traps, struct machine *machine)
{
	if (!traps || !traps->traps)
		return;
	summarize_interrupts(machine_vm(machine));
	if (traps->int3)
		summarize_rdpmc(traps);
}

void run_pmu_destroy(struct run_pmu_traps *traps)
{
	if (!traps)
		return;
	rdpmc_traps_destroy(traps->traps);
	free(traps);
}
