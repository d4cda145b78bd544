/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What QEMU's monitor writes for "info registers -a": the registers of all vCPUs as text (QEMU:
 * target/i386/cpu-dump.c, x86_cpu_dump_state()), and the threads of vCPUs of query-cpus-fast.
 * Any thread.
 */
#ifndef KVMSCOPE_ATTACH_QMP_REGISTERS_H
#define KVMSCOPE_ATTACH_QMP_REGISTERS_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

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

#endif
