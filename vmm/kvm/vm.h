/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual machine: /dev/kvm, the VM with its in-kernel irqchip, its RAM as memslots, interrupt
 * lines. */
#ifndef KVMSCOPE_KVM_VM_H
#define KVMSCOPE_KVM_VM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/kvm/guest_ram.h"

#define VM_CPUS_MAX 64

struct rdpmc_traps;
struct vcpu;

struct vm {
	int kvm_fd;
	int vm_fd;
	struct memory memory;
	pthread_mutex_t irq_lock;        /* held while a line changes; see lapic.h */
	struct rdpmc_traps *rdpmc_traps; /* of vmm/pmu, opaque here; NULL without */
	struct vcpu *vcpus[VM_CPUS_MAX]; /* owned; vcpu_count of them */
	unsigned int vcpu_count;
	bool nested; /* the guest may run guests of its own; set before the first vcpu_create() */
	unsigned int cpus; /* that the guest is told of, 1 to VM_CPUS_MAX: 1, or set before the
			      first vcpu_create() */
};

/*
 * Opens /dev/kvm and makes a VM with MEMORY_SIZE bytes of RAM, irqchip and
 * PIT, no vCPUs yet. The errors of open() and the ioctls, each with its
 * message. Any thread.
 */
int vm_create(struct vm *vm, uint64_t memory_size);

/* Destroys the vCPUs (whose threads must have ended), then the VM. Works on half-made VMs. */
void vm_destroy(struct vm *vm);

/* Sets interrupt line GSI (0 to 23 of the IOAPIC, 0 to 15 also of the PIC). Any thread. */
int vm_set_irq(struct vm *vm, unsigned int gsi, bool high);

/*
 * Does KVM give the guest the host's counters, as far as it can
 * (KVM_CAP_PMU_CAPABILITY)? Before the first vCPU. A KVM that can not be told,
 * before Linux 5.18, goes by what CPUID shows.
 */
void vm_set_kernel_pmu(struct vm *vm, bool enabled);

/* The value of KVM_CHECK_EXTENSION on the VM, 0 if it is not there. */
int vm_capability(const struct vm *vm, int capability);

#endif
