/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest debugging by KVM (Documentation/virt/kvm/api.rst, 4.87
 * KVM_SET_GUEST_DEBUG, 4.33 and 4.34 KVM_GET_DEBUGREGS and KVM_SET_DEBUGREGS). What
 * it leads to comes to the `debug` handler of struct vcpu_handlers.
 *
 * All three ioctls wait until KVM_RUN has ended: they are for the vCPU's
 * thread, so another thread kicks it and has it do them (vcpu_kick() and the
 * `kicked` handler).
 */
#ifndef KVMSCOPE_KVM_VCPU_DEBUG_H
#define KVMSCOPE_KVM_VCPU_DEBUG_H

#include <linux/kvm.h>
#include <stdbool.h>

struct vcpu;
struct vm;

/* Can a single step keep interrupts away (KVM_GUESTDBG_BLOCKIRQ, Linux 5.16)? */
bool vm_can_block_interrupts(const struct vm *vm);

/*
 * From the next entry on; replaces what was set before. -EBUSY without a
 * message if KVM_GUESTDBG_INJECT_DB is asked for while an exception waits to
 * be delivered; else an error of the ioctl.
 */
int vcpu_set_guest_debug(struct vcpu *vcpu, const struct kvm_guest_debug *debug);

/* DR0 to DR3, DR6 and DR7 as the guest sees them, whatever KVM_SET_GUEST_DEBUG has put in their place. */
int vcpu_get_debug_registers(struct vcpu *vcpu, struct kvm_debugregs *registers);
int vcpu_set_debug_registers(struct vcpu *vcpu, const struct kvm_debugregs *registers);

#endif
