/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums the wall time of sampled vCPUs while an attachment lasts, from the scheduler's times of
 * their threads (/proc/PID/task/TID/schedstat): VCPU_RUNNING, VCPU_WAITING and VCPU_ASLEEP. It
 * costs three system calls per vCPU and second, and no rights beyond those of the attachment.
 * Where the kernel does not show these times, all sums stay 0. The attach thread, or the opener
 * before and after that runs, unless noted.
 */
#ifndef KVMSCOPE_ATTACH_WALL_CLOCK_H
#define KVMSCOPE_ATTACH_WALL_CLOCK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/attach/proc_files.h"
#include "vmm/attach/process.h"
#include "vmm/attach/vcpu_times.h"

struct wall_clock {
	/* By vCPU id: the thread that was read last. */
	struct wall_thread {
		pid_t tid; /* 0: none */
		struct thread_cpu_times times;
		uint64_t at; /* ns, CLOCK_MONOTONIC */
	} * threads;
	/* By vCPU id. */
	struct wall_sums {
		atomic_uint_least64_t ns[VCPU_STATES];
	} * sums;
	size_t count;
	uint64_t next; /* ns: when they are read again */
};

/* For vCPUs below COUNT. -ENOMEM. */
int wall_clock_open(struct wall_clock *clock, size_t count);

/* A clock that is zero is allowed. */
void wall_clock_close(struct wall_clock *clock);

/* Adds the time since the last call for the COUNT vCPUs of PROCESS whose threads are the same; does
 * nothing until a second after that. */
void wall_clock_update(struct wall_clock *clock, const struct vmm_process *process,
		       const struct vmm_vcpu *vcpus, size_t count);

/* The same at once. */
void wall_clock_finish(struct wall_clock *clock, const struct vmm_process *process,
		       const struct vmm_vcpu *vcpus, size_t count);

/* The sum of each vCPU that was read. ROWS are for vcpu_times_free(). -ENOMEM. Any thread. */
int wall_clock_rows(struct wall_clock *clock, struct vcpu_times_rows *rows);

/* The sums, of all vCPUs. Any thread. */
struct vcpu_times wall_clock_read(struct wall_clock *clock);

#endif
