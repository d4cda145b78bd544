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
#include <stddef.h>
#include <stdint.h>

struct vcpu;
struct vm;

/* Can a single step keep interrupts away (KVM_GUESTDBG_BLOCKIRQ, Linux 5.16)? */
bool vm_can_block_interrupts(const struct vm *vm);

/*
 * Debug registers and single steps, from the next entry on; replaces what was
 * set before. Software breakpoints stay as they are: KVM has one control word
 * for both, and their users do not know of each other. -EBUSY without a
 * message if KVM_GUESTDBG_INJECT_DB is asked for while an exception waits to
 * be delivered; else an error of the ioctl.
 */
int vcpu_set_guest_debug(struct vcpu *vcpu, const struct kvm_guest_debug *debug);

/*
 * Whether INT3 in the guest (0xCC; not INT1, not INT 3 of two bytes) leaves
 * it, with run->debug.arch.exception 3 and RIP at the instruction, or is the
 * guest's own #BP. What is set by vcpu_set_guest_debug() stays.
 */
int vcpu_set_software_breakpoints(struct vcpu *vcpu, bool on);

/*
 * Lets the guest have the INT3 that it was left for: its #BP, with RIP behind
 * it. KVM_SET_REGS would take it back, so none may follow before the next entry.
 */
int vcpu_inject_breakpoint(struct vcpu *vcpu);
/* The same with a #DB, for which DR6 is set already. */
int vcpu_inject_debug(struct vcpu *vcpu);

/* DR0 to DR3, DR6 and DR7 as the guest sees them, whatever KVM_SET_GUEST_DEBUG has put in their
 * place. */
int vcpu_get_debug_registers(struct vcpu *vcpu, struct kvm_debugregs *registers);
int vcpu_set_debug_registers(struct vcpu *vcpu, const struct kvm_debugregs *registers);

/*
 * Copies up to SIZE bytes at linear ADDRESS as the vCPU now sees it
 * (KVM_TRANSLATE, 4.3 there); how many could be read.
 */
size_t vcpu_read_virtual(struct vcpu *vcpu, uint64_t address, void *to, size_t size);

#endif
