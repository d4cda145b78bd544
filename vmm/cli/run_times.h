/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wall time of run's own vCPU threads, from the scheduler's times of them: running, waiting for
 * a CPU, asleep. Where the kernel does not show these times, there are no rows.
 */
#ifndef KVMSCOPE_CLI_RUN_TIMES_H
#define KVMSCOPE_CLI_RUN_TIMES_H

#include "vmm/attach/vcpu_times.h"

struct run_times;

/* For VCPUS. -ENOMEM. */
int run_times_create(struct run_times **times, unsigned int vcpus);
void run_times_destroy(struct run_times *times);

/* On the thread of VCPU, when it starts and before it ends; again after a reset. */
void run_times_enter(struct run_times *times, unsigned int vcpu);
void run_times_leave(struct run_times *times, unsigned int vcpu);

/* ROWS, which are copied, replace the scheduler's times. After the vCPUs have ended. */
int run_times_replace(struct run_times *times, const struct vcpu_times_rows *rows,
		      enum vcpu_times_detail detail);

/* The times so far. ROWS are for vcpu_times_free(). -ENOMEM. Any thread. */
int run_times_read(struct run_times *times, struct vcpu_times_rows *rows,
		   enum vcpu_times_detail *detail);

#endif
