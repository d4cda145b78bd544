/* SPDX-License-Identifier: Apache-2.0 */
/* The PMU of the machine, by --pmu. Main thread. */
#ifndef KVMSCOPE_CLI_RUN_PMU_H
#define KVMSCOPE_CLI_RUN_PMU_H

#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"

struct run_pmu_traps;

/*
 * Sets the PMU of MACHINE. "auto" is KVM's own if it counts, else an emulated one if that works
 * completely (the probe pmu.emulated), else none. *TRAPS is NULL if nothing is left to do.
 * -ENOTSUP if KVM's own is required and does not count, -ENOMEM. Forks (see probe_one()): before
 * there are other threads.
 */
int run_pmu_join(struct run_pmu_traps **traps, enum run_pmu choice,
		 struct machine_options *machine);

/* Traps RDPMC for an emulated PMU; if "auto" found none, the guest's first access to its registers
 * logs why. Between machine_create() and machine_start(). TRAPS may be NULL, also below. */
int run_pmu_start(struct run_pmu_traps *traps, struct machine *machine);
/* For an emulated PMU, logs how late its interrupts were and how often RDPMC was emulated. After
 * the vCPUs' threads have ended. */
void run_pmu_summarize(const struct run_pmu_traps *traps, struct machine *machine);
/* Before the machine is destroyed. */
void run_pmu_destroy(struct run_pmu_traps *traps);

#endif
