/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples from a monitor, with the CPU time that the vCPU's thread has used since the previous one.
 * A halted vCPU is skipped: its time goes to the next sample of the running vCPU. If one thread
 * runs several vCPUs in turn (TCG with thread=single), the running ones share its time equally, as
 * QEMU schedules them. Samples with a known time wait in a queue.
 *
 * One thread at a time: the user has the lock.
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
	bool smm; /* system management mode: firmware ran, not the kernel */
};

struct qmp_sampled_vcpu;

/* Zero-initialized. */
struct qmp_samples {
	struct qmp_sampled_vcpu *vcpus[VMM_VCPUS_MAX]; /* owned */
	size_t count;
	struct qmp_sample queue[QMP_SAMPLES_QUEUE]; /* a ring */
	size_t first, queued;
	uint64_t lost;   /* samples since the last qmp_samples_consume() */
	uint64_t missed; /* ns of CPU time without an answer, below one interval */
};

/* Samples VCPU of PROCESS from now on. -ESRCH: its thread has exited; -ENOMEM; with the message. */
int qmp_samples_add_vcpu(struct qmp_samples *samples, const struct vmm_process *process,
			 const struct vmm_vcpu *vcpu);
void qmp_samples_remove_vcpu(struct qmp_samples *samples, unsigned int id);

void qmp_samples_free(struct qmp_samples *samples);

/* Adds samples from TEXT, the monitor's output for all vCPUs (qmp_parse_registers()), read at
 * TIME, CLOCK_MONOTONIC_RAW. */
void qmp_samples_add_text(struct qmp_samples *samples, const char *text, uint64_t time);

/* Counts the CPU time since the last read as lost samples, one per INTERVAL, in ns. */
void qmp_samples_count_gap(struct qmp_samples *samples, uint64_t interval);

/* Moves at most MAX samples out of the queue, the oldest first, and returns their number. LOST:
 * samples lost since the last call. */
size_t qmp_samples_consume(struct qmp_samples *samples, struct qmp_sample *to, size_t max,
			   uint64_t *lost);

#endif
