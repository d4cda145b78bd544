/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at vCPUs by a monitor, and what each stands for: the CPU time that the vCPU's thread used
 * since the look before. A halted vCPU is passed over: its time goes to the next look that finds it
 * running. Where one thread runs several vCPUs in turn (TCG with thread=single) those that run
 * share it alike, as QEMU has them do. Looks whose time is known wait in a queue to be taken.
 *
 * One thread at a time, the lock is its user's.
 */
#ifndef KVMSCOPE_ATTACH_QMP_SAMPLES_H
#define KVMSCOPE_ATTACH_QMP_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/process.h"
#include "vmm/attach/qmp_text.h"
#include "vmm/guest/guest_registers.h"

#define QMP_SAMPLES_QUEUE 4096

struct qmp_sample {
	unsigned int id; /* of the vCPU */
	pid_t tid;
	uint64_t time;   /* ns, CLOCK_MONOTONIC_RAW */
	uint64_t period; /* ns of the thread's CPU time */
	struct guest_registers registers;
	bool smm; /* in system management mode: firmware ran, beside the kernel */
};

struct qmp_sampled_vcpu;

/* All 0 at first. */
struct qmp_samples {
	struct qmp_sampled_vcpu *vcpus[VMM_VCPUS_MAX]; /* owned */
	size_t count;
	struct qmp_sample queue[QMP_SAMPLES_QUEUE]; /* a ring */
	size_t first, queued;
	uint64_t lost;   /* looks that can not be taken */
	uint64_t missed; /* ns of CPU time while the monitor did not answer, of less than a look */
};

/* Looks at VCPU of PROCESS from now on. -ESRCH: its thread has ended; -ENOMEM; with the message. */
int qmp_samples_add_vcpu(struct qmp_samples *samples, const struct vmm_process *process,
			 const struct vmm_vcpu *vcpu);
void qmp_samples_remove_vcpu(struct qmp_samples *samples, unsigned int id);

/* Of all, at the end. */
void qmp_samples_free(struct qmp_samples *samples);

/* What the monitor wrote of all vCPUs (qmp_parse_registers()), as they were at TIME,
 * CLOCK_MONOTONIC_RAW. */
void qmp_samples_add_text(struct qmp_samples *samples, const char *text, uint64_t time);

/* Nobody has looked until now: what the vCPUs did meanwhile is in no look. So many are lost as are
 * taken each INTERVAL, ns. */
void qmp_samples_count_gap(struct qmp_samples *samples, uint64_t interval);

/* Takes looks, MAX at most, the oldest first; their number. LOST: how many could not be taken
 * meanwhile. */
size_t qmp_samples_consume(struct qmp_samples *samples, struct qmp_sample *to, size_t max,
			   uint64_t *lost);

#endif
