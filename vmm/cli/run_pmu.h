/* SPDX-License-Identifier: Apache-2.0 */
/* What --pmu means for the machine. */
#ifndef KVMSCOPE_CLI_RUN_PMU_H
#define KVMSCOPE_CLI_RUN_PMU_H

#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"

struct run_pmu_traps;

/*
 * Gives MACHINE the PMU that is wanted. auto is KVM's own where it counts, else none.
 * emulated is with RDPMC where this KVM leaves the guest for INT3; where not, a warning says
 * that a Linux guest had better not use it. -ENOTSUP where the kernel's is asked for and does not
 * count. Forks (see probe_one()): on the main thread, before there are others.
 */
int run_pmu_join(enum run_pmu wanted, struct machine_options *machine);

/*
 * Between machine_create() and machine_start(), with the options that run_pmu_join()
 * has filled: *TRAPS is NULL where there is nothing to trap. They go before the machine.
 */
int run_pmu_start(struct run_pmu_traps **traps, const struct machine_options *options,
		  struct machine *machine);
/* A line on standard error. TRAPS may be NULL here and in the next one. */
void run_pmu_summarize(const struct run_pmu_traps *traps);
void run_pmu_destroy(struct run_pmu_traps *traps);

#endif
