// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_pmu.h"

#include <errno.h>
#include <stdlib.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/machine/probe.h"
#include "vmm/pmu/pmu_kernel.h"
#include "vmm/pmu/pmu_vcpu.h"
#include "vmm/pmu/rdpmc_traps.h"
#include "vmm/sample/vm_view.h"

struct run_pmu_traps {
	struct vm_view view;
	struct rdpmc_traps *traps;
};

/* In ROW's detail, why not. */
static bool kernel_counts(struct probe_row *row)
{
	return !probe_one("pmu.guest", row) && row->state == PROBE_YES;
}

/* Linux reads counters with RDPMC alone. */
static const struct vcpu_pmu_operations *emulated(void)
{
	struct probe_row row = { .detail = "it could not be tried" };

	if (!probe_one("debug.int3", &row) && row.works & PROBE_IN_KERNEL)
		return &rdpmc_traps_pmu;
	log_warning("RDPMC will raise #GP in the guest, which a Linux that uses its PMU does not survive: "
		    "this host's KVM does not leave a guest for INT3 (%s); see kvmscope doctor",
		    row.detail);
	return &pmu_vcpu_emulated;
}

int run_pmu_join(enum run_pmu wanted, struct machine_options *machine)
{
	struct probe_row row = { .detail = "it could not be tried" };

	if (wanted == RUN_PMU_OFF)
		return 0;
	if (wanted == RUN_PMU_EMULATED) {
		machine->pmu = emulated();
		return 0;
	}
	if (kernel_counts(&row)) {
		machine->pmu = &pmu_kernel;
		return 0;
	}
	return wanted == RUN_PMU_AUTO
		       ? 0
		       : error_set(-ENOTSUP, "--pmu kernel: this host's KVM gives guests no counters: %s",
				   row.detail);
}

int run_pmu_start(struct run_pmu_traps **result, const struct machine_options *options,
		  struct machine *machine)
{
	struct rdpmc_traps_options traps = { .vm = machine_vm(machine), .registers = vm_view_registers };
	struct run_pmu_traps *made;
	int error;

	*result = NULL;
	if (options->pmu != &rdpmc_traps_pmu)
		return 0;
	made = calloc(1, sizeof(*made));
	if (!made)
		return error_set(-ENOMEM, "no memory for the guest's PMU");
	vm_view_init(&made->view, &traps.vm->memory);
	traps.view = &made->view.view;
	error = rdpmc_traps_create(&made->traps, &traps);
	if (error)
		free(made);
	else
		*result = made;
	return error;
}

void run_pmu_summarize(const struct run_pmu_traps *traps)
{
	struct rdpmc_traps_statistics statistics;

	if (!traps)
		return;
	rdpmc_traps_statistics(traps->traps, &statistics);
	log_info(
		"the guest's PMU: RDPMC was completed %llu times; %llu INT3 of the guest's own were given to it",
		(unsigned long long)statistics.completed, (unsigned long long)statistics.guest_breakpoints);
}

void run_pmu_destroy(struct run_pmu_traps *traps)
{
	if (!traps)
		return;
	rdpmc_traps_destroy(traps->traps);
	free(traps);
}
