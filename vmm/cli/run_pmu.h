/* SPDX-License-Identifier: Apache-2.0 */
/* What --pmu means for the machine. */
#ifndef KVMSCOPE_CLI_RUN_PMU_H
#define KVMSCOPE_CLI_RUN_PMU_H

#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"

struct run_pmu_traps;

/*
 * Gives MACHINE the PMU that is wanted; auto is KVM's own where it counts, else an
 * emulated one where nothing of it is missing (the probe pmu.emulated), else none. *TRAPS is
 * NULL where nothing is left to do: for KVM's own, and where none is wanted. -ENOTSUP
 * where the kernel's is asked for and does not count, -ENOMEM. Forks (see probe_one()): on the
 * main thread, before there are others.
 */
int run_pmu_join(struct run_pmu_traps **traps, enum run_pmu wanted,
		 struct machine_options *machine);

/*
 * Traps RDPMC for an emulated one; where auto has found none, a line says why. Between
 * machine_create() and machine_start(). TRAPS may be NULL here and below.
 */
int run_pmu_start(struct run_pmu_traps *traps, struct machine *machine);
/*
 * On standard error, for an emulated one: how late its interrupts were, if there were any, and how
 * often RDPMC was completed, if it was. Once the vCPUs' threads have ended.
 */
void run_pmu_summarize(const struct run_pmu_traps *traps, struct machine *machine);
/* Before the machine. */
void run_pmu_destroy(struct run_pmu_traps *traps);

#endif
