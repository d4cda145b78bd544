/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What QEMU's monitor writes for "info registers -a": the registers of all vCPUs as text (QEMU:
 * target/i386/cpu-dump.c, x86_cpu_dump_state()), and the threads of vCPUs of query-cpus-fast.
 * Any thread.
 */
#ifndef KVMSCOPE_ATTACH_QMP_TEXT_H
#define KVMSCOPE_ATTACH_QMP_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/attach/vmm_memory.h"
#include "vmm/guest/guest_registers.h"

struct qmp_registers {
	unsigned int id;
	struct guest_registers
		registers; /* RIP is linear: with the base of CS in it where that counts */
	bool halted, smm;
};

/*
 * The first vCPU in TEXT, and where the text of the next one begins. False: there is none any more.
 * A vCPU whose text does not have everything is passed over.
 */
bool qmp_parse_registers(const char **text, struct qmp_registers *registers);

struct qmp_vcpu {
	unsigned int id;
	pid_t tid; /* in QEMU's PID namespace */
};

/*
 * The vCPUs that the RESULT of query-cpus-fast tells, at most MAX; their number. -EPROTO: that is
 * not its result; -ENOTSUP: they are no x86, whose name is in the message.
 */
int qmp_parse_vcpus(const json_t *result, struct qmp_vcpu *vcpus, size_t max);

/*
 * Which of QEMU's memory is which of the guest's, as its monitor writes it: "info mtree -f" (QEMU:
 * softmmu/memory.c, mtree_print_flatview()) has the ranges of RAM, "gpa2hva" (monitor/misc.c) where
 * one begins. Any thread.
 */

/*
 * The RAM and ROM of the address space "memory" in TEXT, whose HVAs are not known yet; their
 * number, at most MAX. 0: it is not there, or makes no sense.
 */
size_t qmp_parse_memory(const char *text, struct vmm_slot *slots, size_t max);

/* "Host virtual address for 0x100000 (pc.ram) is 0x7f533ff00000" */
bool qmp_parse_hva(const char *text, uint64_t *hva);

#endif
