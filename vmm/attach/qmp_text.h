/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of QEMU's monitor output, all for any thread. Registers and vCPUs: "info registers -a"
 * (QEMU: target/i386/cpu-dump.c, x86_cpu_dump_state()) and query-cpus-fast. */
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
	struct guest_registers registers; /* RIP is linear: includes the base of CS */
	bool halted, smm;
};

/* Parses the first vCPU in TEXT, and advances to the next one. False: no more. Incomplete vCPUs
 * are skipped. */
bool qmp_parse_registers(const char **text, struct qmp_registers *registers);

struct qmp_vcpu {
	unsigned int id;
	pid_t tid; /* in QEMU's PID namespace */
};

/* Parses the RESULT of query-cpus-fast. Returns the number of vCPUs, at most MAX. -EPROTO: not
 * such a result; -ENOTSUP: not x86. */
int qmp_parse_vcpus(const json_t *result, struct qmp_vcpu *vcpus, size_t max);

/* Guest memory: "info mtree -f" (QEMU: softmmu/memory.c, mtree_print_flatview()) lists the
 * ranges of RAM, and "gpa2hva" (monitor/misc.c) translates their starts. */

/* Parses RAM and ROM of the address space "memory" in TEXT, without HVAs. Returns their number,
 * at most MAX. 0: absent or inconsistent. */
size_t qmp_parse_memory(const char *text, struct vmm_slot *slots, size_t max);

/* "Host virtual address for 0x100000 (pc.ram) is 0x7f533ff00000" */
bool qmp_parse_hva(const char *text, uint64_t *hva);

#endif
