/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long each vCPU was in which state (bpf/exit_program.h, enum vcpu_state): sums that only grow,
 * so a difference of two readings belongs to the time between them. One thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_VCPU_TIMES_H
#define KVMSCOPE_ATTACH_VCPU_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/bpf/exit_program.h"
#include "vmm/attach/process.h"

struct vcpu_times {
	unsigned int vcpu;        /* KVM's id */
	uint64_t ns[VCPU_STATES]; /* by enum vcpu_state */
	/* Interrupts of the host that found the guest in its user space and in its kernel. */
	uint64_t user_samples, kernel_samples;
};

/* The states that a reading distinguishes. */
enum vcpu_times_detail {
	VCPU_TIMES_OF_PROC,      /* VCPU_RUNNING, VCPU_WAITING, VCPU_ASLEEP */
	VCPU_TIMES_OF_SCHEDULER, /* instead of VCPU_ASLEEP, VCPU_HALTED and VCPU_BLOCKED */
	VCPU_TIMES_ALL,          /* instead of VCPU_RUNNING, VCPU_GUEST, VCPU_KVM and VCPU_VMM */
};

struct vcpu_times_rows {
	struct vcpu_times *rows; /* by vCPU, in ascending order */
	size_t count, capacity;
};

void vcpu_times_free(struct vcpu_times_rows *rows);

/* The row of VCPU, new if it is missing. NULL: no memory. Earlier rows may move. */
struct vcpu_times *vcpu_times_row(struct vcpu_times_rows *rows, unsigned int vcpu);

/* Removes EARLIER, the state of the same vCPUs at an earlier time. */
void vcpu_times_subtract(struct vcpu_times_rows *rows, const struct vcpu_times_rows *earlier);

/* The sum of all rows; its vcpu is 0. */
struct vcpu_times vcpu_times_sum(const struct vcpu_times_rows *rows);

/* True if readings with DETAIL have STATE. */
bool vcpu_times_have(enum vcpu_times_detail detail, enum vcpu_state state);

/* An estimate of the guest's time in its user space, in ns: the share of interrupts that found it
 * there. -1: there are too few. */
double vcpu_times_guest_user(const struct vcpu_times *times);

/* The name of a state, as in JSON: "guest", "kvm", ... */
const char *vcpu_state_name(enum vcpu_state state);

/*
 * Reads the times of the vCPUs of PROCESS whose threads are known from /proc/PID/task/TID/schedstat
 * since an unknown time: VCPU_RUNNING, VCPU_WAITING and, as the rest, VCPU_ASLEEP only. -ENOMEM;
 * -ENOTSUP: the kernel does not keep these times; with the message.
 */
int vcpu_times_read_proc(const struct vmm_process *process, struct vcpu_times_rows *rows);

#endif
