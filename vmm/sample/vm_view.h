/* SPDX-License-Identifier: Apache-2.0 */
/* Our own VM as a guest view, and its registers in the format of vmm/guest. */
#ifndef KVMSCOPE_SAMPLE_VM_VIEW_H
#define KVMSCOPE_SAMPLE_VM_VIEW_H

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/kvm/guest_ram.h"
#include "vmm/kvm/vcpu.h"

struct vm_view {
	struct guest_view view;
	struct guest_region regions[MEMORY_REGIONS_MAX];
};

/* Initializes VIEW for MEMORY, which must outlive it. Any number of threads may then read
 * through view->view. VIEW must not move. */
void vm_view_init(struct vm_view *view, const struct memory *memory);

/* Converts KVM's registers. */
void vm_view_copy_registers(const struct kvm_regs *general, const struct kvm_sregs *special,
			    struct guest_registers *registers);

/* The registers of a stopped vCPU from sync regs, without system calls except for that of
 * vcpu_runs_nested(). On the vCPU's thread. */
void vm_view_registers(struct vcpu *vcpu, struct guest_registers *registers);

#endif
