/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that looks at the vCPUs of a QEMU through its monitor, now and then and at random
 * moments, as it may have to wait for each answer. What it sees waits in a queue to be taken.
 *
 * What is exact, and what is not: with TCG the vCPU runs on while the monitor reads it (QEMU:
 * hmp_info_registers() -> cpu_dump_state(); only vCPUs of KVM are synchronized). RIP is one load,
 * and code that QEMU generates sets it at the end of each block since QEMU 7.2
 * (target/i386/tcg/translate.c, gen_jmp_rel(): TARGET_TB_PCREL, later CF_PCREL), so it is the start
 * of the block that ran at that moment; older ones leave it for as long as blocks jump to each
 * other, and are refused. All else is of moments around that one.
 */
#ifndef KVMSCOPE_ATTACH_QMP_READER_H
#define KVMSCOPE_ATTACH_QMP_READER_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/monitor.h"
#include "vmm/attach/process.h"
#include "vmm/attach/qmp_samples.h"
#include "vmm/attach/qmp_text.h"
#include "vmm/attach/vmm_memory.h"

/* Hz. Each look takes QEMU's main loop and its big lock for some time. */
#define QMP_READER_FREQUENCY_MAX 200

struct qmp_reader;

/*
 * Connects to the monitor at ADDRESS (copied) of PROCESS and waits until it has told its vCPUs, for
 * 10 s at most. FREQUENCY in Hz, at most QMP_READER_FREQUENCY_MAX, is what is tried, in a tenth of
 * QEMU's main loop's time and half of all time at most. Errors: those of monitor_open(); -ENOTSUP:
 * it is no x86, or a TCG that is too old; -ETIMEDOUT.
 */
int qmp_reader_start(struct qmp_reader **reader, const struct monitor_address *address,
		     const struct vmm_process *process, unsigned int frequency);

/* The vCPUs as the monitor told them last, VMM_VCPUS_MAX at most, with threads in QEMU's PID
 * namespace. */
size_t qmp_reader_vcpus(struct qmp_reader *reader, struct qmp_vcpu *vcpus);

/* The guest's memory as the monitor told it last, VMM_SLOTS_MAX slots at most; 0: it does not tell.
 */
size_t qmp_reader_slots(struct qmp_reader *reader, struct vmm_slot *slots);

/* Looks at VCPU from now on. -ESRCH: its thread has ended. */
int qmp_reader_add(struct qmp_reader *reader, const struct vmm_vcpu *vcpu);
void qmp_reader_remove(struct qmp_reader *reader, unsigned int id);

/*
 * Takes looks, MAX at most, the oldest first; their number. LOST: how many could not be taken
 * meanwhile, as the queue was full or the monitor did not answer.
 */
size_t qmp_reader_consume(struct qmp_reader *reader, struct qmp_sample *samples, size_t max,
			  uint64_t *lost);

/* What it did so far. */
struct qmp_reader_statistics {
	uint64_t samples;
	uint64_t time;      /* ns until they were answered */
	uint64_t main_loop; /* ns of these that QEMU's main loop wanted a processor for */
	uint64_t elapsed;   /* ns since the first one */
};

void qmp_reader_statistics(struct qmp_reader *reader, struct qmp_reader_statistics *statistics);

/* Ends it. If it waits for libvirt it ends when that answers, and uses nothing of its caller's
 * then. */
void qmp_reader_stop(struct qmp_reader *reader);

#endif
