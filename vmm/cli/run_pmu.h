/* SPDX-License-Identifier: Apache-2.0 */
/* What --pmu means for the machine. */
#ifndef KVMSCOPE_CLI_RUN_PMU_H
#define KVMSCOPE_CLI_RUN_PMU_H

#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"

/*
 * Gives MACHINE the PMU that is wanted. auto is KVM's own where it counts, else none:
 * Linux reads an emulated one with RDPMC, which it can not do where nobody completes
 * that. -ENOTSUP where the kernel's is asked for and does not count. Forks (see
 * probe_one()): on the main thread, before there are others.
 */
int run_pmu_join(enum run_pmu wanted, struct machine_options *machine);

#endif
