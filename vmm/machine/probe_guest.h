/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A throw-away VM for one probe: 2 MiB of RAM, one vCPU in long mode, no
 * devices. Deliberately not struct vm of vmm/kvm: a probe wants to see what
 * KVM does with the bare call, with nothing worked around.
 *
 * Guest code ends by a write to PROBE_END_PORT, at any CPL (IOPL is 3).
 * At the latest the end of the probe's process destroys it.
 */
#ifndef KVMSCOPE_MACHINE_PROBE_GUEST_H
#define KVMSCOPE_MACHINE_PROBE_GUEST_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/kvm/cpuid.h"

#define PROBE_END_PORT 0xf4

/* Guest addresses, physical and virtual alike. */
#define PROBE_CODE 0x8000ull
#define PROBE_HANDLER                                                                              \
	0x9000ull /* of interrupts and system calls: ends with PROBE_HANDLER_VALUE if it runs at   \
		     CPL0 */
#define PROBE_USER_CODE  0xa000ull
#define PROBE_DATA       0x10000ull /* zero at first, 64-byte aligned */
#define PROBE_STACK      0x20000ull
#define PROBE_USER_STACK 0x30000ull

#define PROBE_HANDLER_VALUE 2

/* The one interrupt that has a gate, to PROBE_HANDLER. */
#define PROBE_VECTOR 0x80ul

/* Selectors of the GDT there. */
#define PROBE_KERNEL_CODE  0x10
#define PROBE_KERNEL_DATA  0x18
#define PROBE_USER_DATA    0x2b
#define PROBE_USER_CODE_64 0x33

/* out PROBE_END_PORT, al; hlt */
#define PROBE_END 0xe6, PROBE_END_PORT, 0xf4

struct probe_vm {
	int kvm_fd;
	int vm_fd;
	int vcpu_fd;
	struct kvm_run *run; /* run_size bytes */
	size_t run_size;
	uint8_t *memory;
	struct cpuid_table cpuid;
};

/* Opens /dev/kvm and makes an empty VM of it, no vCPU. A negative errno with its message. */
int probe_vm_create(struct probe_vm *vm);

/* Makes RAM and the vCPU, which will start at CODE of SIZE bytes at CPL (0 or 3). */
int probe_vm_start(struct probe_vm *vm, const void *code, size_t size, int cpl);

/* Both of them. */
int probe_vm_open(struct probe_vm *vm, const void *code, size_t size, int cpl);

/* Gives back what probe_vm_open() made; for probes that need several. */
void probe_vm_close(struct probe_vm *vm);

/* KVM_RUN until it ends otherwise than by a signal: the exit reason, or a negative errno. */
int probe_vm_run(struct probe_vm *vm);

/* Did the last run end by a write to PROBE_END_PORT? */
bool probe_vm_ended(const struct probe_vm *vm);
/* The byte written there. */
uint8_t probe_vm_value(const struct probe_vm *vm);

/* What the last run ended by, in words for a person; valid until the next call. */
const char *probe_vm_exit(const struct probe_vm *vm);

/* KVM_CHECK_EXTENSION on the VM; 0 if it is not there. */
int probe_vm_capability(const struct probe_vm *vm, int capability);

#endif
