/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples the vCPUs of a QEMU through its monitor, at random times, on a thread of its own,
 * "monitor", as answers may take long. Samples wait in a queue.
 *
 * Accuracy: with TCG a vCPU keeps running while the monitor reads it (QEMU: hmp_info_registers() ->
 * cpu_dump_state(); only KVM vCPUs are synchronized). RIP is one load. Generated code sets it at
 * the end of each block since QEMU 7.2 (target/i386/tcg/translate.c, gen_jmp_rel():
 * TARGET_TB_PCREL, later CF_PCREL), so it is the start of the block that ran at that time. Older
 * versions do not update it between chained blocks, and are refused. Other registers are of
 * slightly different times.
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

/* Hz. Each read uses QEMU's main loop and its big lock. */
#define QMP_READER_FREQUENCY_MAX 200

struct qmp_reader;

/*
 * Connects to the monitor at ADDRESS (copied) of PROCESS, and waits at most 10 s for its vCPUs.
 * FREQUENCY in Hz (at most QMP_READER_FREQUENCY_MAX) is reduced so that reads use at most a tenth
 * of the time of QEMU's main loop, and half of all time. -ENOTSUP: not x86, or a too old TCG;
 * -ETIMEDOUT; the errors of monitor_open().
 */
int qmp_reader_start(struct qmp_reader **reader, const struct monitor_address *address,
		     const struct vmm_process *process, unsigned int frequency);

/* The vCPUs as reported last, at most VMM_VCPUS_MAX, with TIDs in QEMU's PID namespace. */
size_t qmp_reader_vcpus(struct qmp_reader *reader, struct qmp_vcpu *vcpus);

/* Guest memory as reported last, at most VMM_SLOTS_MAX slots; 0: not reported. */
size_t qmp_reader_slots(struct qmp_reader *reader, struct vmm_slot *slots);

/* Samples VCPU from now on. -ESRCH: its thread has exited. */
int qmp_reader_add(struct qmp_reader *reader, const struct vmm_vcpu *vcpu);
void qmp_reader_remove(struct qmp_reader *reader, unsigned int id);

/* Moves at most MAX samples out of the queue, the oldest first, and returns their number. LOST:
 * samples lost since the last call, as the queue was full or the monitor did not answer. */
size_t qmp_reader_consume(struct qmp_reader *reader, struct qmp_sample *samples, size_t max,
			  uint64_t *lost);

/* Since the start. */
struct qmp_reader_statistics {
	uint64_t samples;
	uint64_t time;      /* ns until answers arrived */
	uint64_t main_loop; /* ns of TIME that QEMU's main loop was runnable */
	uint64_t elapsed;   /* ns since the first read */
};

void qmp_reader_statistics(struct qmp_reader *reader, struct qmp_reader_statistics *statistics);

/* Ends the reader. If the thread waits for libvirt, it ends when that answers, and does not use
 * the caller's memory. */
void qmp_reader_stop(struct qmp_reader *reader);

#endif
