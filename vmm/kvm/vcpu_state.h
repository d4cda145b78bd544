/* SPDX-License-Identifier: Apache-2.0 */
/* All of a vCPU's state that a guest can change, for reset_state.c. */
#ifndef KVMSCOPE_KVM_VCPU_STATE_H
#define KVMSCOPE_KVM_VCPU_STATE_H

#include <linux/kvm.h>
#include <stddef.h>
#include <stdint.h>

struct vcpu;

/* Numbers of the MSRs that this KVM tells of (KVM_GET_MSR_INDEX_LIST). */
struct msr_list {
	uint32_t *indices; /* owned */
	size_t count;
};

struct vcpu_state {
	struct kvm_nested_state
		nested; /* outside of all guests of the guest; with struct vm's nested */
	struct kvm_mp_state mp_state;
	struct kvm_regs registers;
	struct kvm_sregs special_registers;
	struct kvm_xsave xsave;
	struct kvm_xcrs xcrs;
	struct kvm_debugregs debug_registers;
	struct kvm_lapic_state lapic;
	struct kvm_vcpu_events events;
	struct kvm_msr_entry *msrs; /* owned; those that can be read */
	size_t msr_count;
};

/* -ENOMEM and the errors of the ioctl. */
int msr_list_read(struct msr_list *list, int kvm_fd);
/* Frees what it holds; zeroed, it holds nothing. */
void msr_list_free(struct msr_list *list);

/* Both while the vCPU has no thread. Errors: -ENOMEM, those of the ioctls. */
int vcpu_state_take(struct vcpu_state *state, struct vcpu *vcpu, const struct msr_list *list);
int vcpu_state_put(const struct vcpu_state *state, struct vcpu *vcpu);
/* Frees what it holds; zeroed, it holds nothing. */
void vcpu_state_free(struct vcpu_state *state);

#endif
