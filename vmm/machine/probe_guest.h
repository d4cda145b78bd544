/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM for one probe: 2 MiB of RAM, one vCPU in long mode, no devices. It does not use struct vm of
 * vmm/kvm because probes test the bare KVM calls, without workarounds.
 *
 * Guest code ends with a write to PROBE_END_PORT at any CPL (IOPL is 3). The end of the probe's
 * process destroys the VM at the latest.
 */
#ifndef KVMSCOPE_MACHINE_PROBE_GUEST_H
#define KVMSCOPE_MACHINE_PROBE_GUEST_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/kvm/cpuid.h"

#define PROBE_END_PORT 0xf4

/* Guest addresses, physical and virtual. */
#define PROBE_CODE 0x8000ull
/* Handler of interrupts and system calls: ends with PROBE_HANDLER_VALUE if it runs at CPL0. */
#define PROBE_HANDLER    0x9000ull
#define PROBE_USER_CODE  0xa000ull
#define PROBE_DATA       0x10000ull /* initially zero, 64-byte aligned */
#define PROBE_STACK      0x20000ull
#define PROBE_USER_STACK 0x30000ull

#define PROBE_HANDLER_VALUE 2

/* The only interrupt with a gate, which leads to PROBE_HANDLER. */
#define PROBE_VECTOR 0x80ul

/* Selectors in the VM's GDT. */
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

/* Opens /dev/kvm and creates an empty VM without vCPU. A negative errno with a message. */
int probe_vm_create(struct probe_vm *vm);

/* Creates RAM and the vCPU, which starts at CODE (SIZE bytes) at CPL (0 or 3). */
int probe_vm_start(struct probe_vm *vm, const void *code, size_t size, int cpl);

/* probe_vm_create() and probe_vm_start(). */
int probe_vm_open(struct probe_vm *vm, const void *code, size_t size, int cpl);

/* Releases everything, for probes that need several VMs. */
void probe_vm_close(struct probe_vm *vm);

/* KVM_RUN until an exit other than for a signal. Returns the exit reason, or a negative errno. */
int probe_vm_run(struct probe_vm *vm);

/* True if the last run ended with a write to PROBE_END_PORT. */
bool probe_vm_ended(const struct probe_vm *vm);
/* The byte written to PROBE_END_PORT. */
uint8_t probe_vm_value(const struct probe_vm *vm);

/* A description of the last exit, valid until the next call. */
const char *probe_vm_exit(const struct probe_vm *vm);

/* KVM_CHECK_EXTENSION on the VM; 0 if the extension is missing. */
int probe_vm_capability(const struct probe_vm *vm, int capability);

#endif
