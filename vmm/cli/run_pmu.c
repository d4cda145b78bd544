// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_pmu.h"

#include <errno.h>

#include "shared/error.h"
#include "vmm/machine/probe.h"
#include "vmm/pmu/pmu_kernel.h"
#include "vmm/pmu/pmu_vcpu.h"

/* In ROW's detail, why not. */
static bool kernel_counts(struct probe_row *row)
{
	return !probe_one("pmu.guest", row) && row->state == PROBE_YES;
}

int run_pmu_join(enum run_pmu wanted, struct machine_options *machine)
{
	struct probe_row row = { .detail = "it could not be tried" };

	if (wanted == RUN_PMU_OFF)
		return 0;
	if (wanted == RUN_PMU_EMULATED) {
		machine->pmu = &pmu_vcpu_emulated;
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
