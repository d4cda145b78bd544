/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual machine: /dev/kvm, the VM with its in-kernel irqchip, RAM as memslots, interrupt
 * lines. */
#ifndef KVMSCOPE_KVM_VM_H
#define KVMSCOPE_KVM_VM_H

#include <linux/kvm.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "vmm/kvm/guest_ram.h"

#define VM_CPUS_MAX 64

struct pmu_absent;
struct rdpmc_traps;
struct vcpu;

struct vm {
	int kvm_fd;
	int vm_fd;
	struct memory memory;
	pthread_mutex_t irq_lock;        /* held while a line changes; see lapic.h */
	struct rdpmc_traps *rdpmc_traps; /* of vmm/pmu, opaque here; may be NULL */
	struct pmu_absent *pmu_absent;   /* as rdpmc_traps */
	struct vcpu *vcpus[VM_CPUS_MAX]; /* owned; vcpu_count of them */
	unsigned int vcpu_count;
	bool nested; /* nested virtualization for the guest; set before the first vcpu_create() */
	unsigned int cpus; /* CPUs shown to the guest, 1 to VM_CPUS_MAX; set before the first
			      vcpu_create() */
};

/* Opens /dev/kvm and creates a VM with MEMORY_SIZE bytes of RAM, irqchip and PIT, without vCPUs.
 * The errors of open() and the ioctls, with a message. Any thread. */
int vm_create(struct vm *vm, uint64_t memory_size);

/* Destroys the vCPUs, whose threads must have ended, then the VM. Works on partly created VMs. */
void vm_destroy(struct vm *vm);

/* Sets interrupt line GSI: 0 to 23 of the IOAPIC, 0 to 15 also of the PIC. Any thread. */
int vm_set_irq(struct vm *vm, unsigned int gsi, bool high);

/* error_set() for an ioctl that failed with errno: "this host's KVM refused WHAT". Returns
 * -errno. */
int vm_refused(const char *what);

/* The value of KVM_CHECK_EXTENSION on the VM, 0 if the extension is missing. Any thread. */
static inline int vm_capability(const struct vm *vm, int capability)
{
	int value = ioctl(vm->vm_fd, KVM_CHECK_EXTENSION, capability);

	return value < 0 ? 0 : value;
}

#endif
