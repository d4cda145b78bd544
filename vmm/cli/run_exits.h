/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run --stat: the wall time and the exits of a run, at its end. By BPF, as kvmscope stat counts
 * them; where that does not work, this process counts the exits that reach it. Main thread.
 */
#ifndef KVMSCOPE_CLI_RUN_EXITS_H
#define KVMSCOPE_CLI_RUN_EXITS_H

#include <stdbool.h>

#include "vmm/attach/vcpu_times.h"
#include "vmm/machine/machine.h"

struct run_exits;

/* Counts from now on. Before the process is confined. -ENOMEM. */
int run_exits_open(struct run_exits **exits);

/* Counts the exits of MACHINE, which does not run yet, if they are not counted by BPF. */
int run_exits_join(struct run_exits *exits, struct machine *machine);

/* The wall times of the vCPUs by BPF, for vcpu_times_free(). False: they are not measured. After
 * the vCPUs have ended. */
bool run_exits_times(const struct run_exits *exits, struct vcpu_times_rows *rows,
		     enum vcpu_times_detail *detail);

/* Prints the tables of VCPUS in SECONDS to standard error, as perf stat does: standard output may
 * be the guest's. After the vCPUs have ended. */
void run_exits_print(const struct run_exits *exits, unsigned int vcpus, double seconds);

/* After the machine is destroyed. NULL is a no-op. */
void run_exits_close(struct run_exits *exits);

#endif
