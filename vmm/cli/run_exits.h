/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run --stat: the wall time and the exits of a run, at its end. By BPF, as kvmscope stat counts
 * them; where that does not work, this process counts the exits that reach it. Main thread.
 */
#ifndef KVMSCOPE_CLI_RUN_EXITS_H
#define KVMSCOPE_CLI_RUN_EXITS_H

#include "vmm/machine/machine.h"

struct run_exits;

/* Counts from now on. Before the process is confined. -ENOMEM. */
int run_exits_open(struct run_exits **exits);

/* Counts the exits of MACHINE, which does not run yet, if they are not counted by BPF. */
int run_exits_join(struct run_exits *exits, struct machine *machine);

/* Prints the tables of VCPUS in SECONDS to standard error, as perf stat does: standard output may
 * be the guest's. After the vCPUs have ended. */
void run_exits_print(const struct run_exits *exits, unsigned int vcpus, double seconds);

/* After the machine is destroyed. NULL is a no-op. */
void run_exits_close(struct run_exits *exits);

#endif
