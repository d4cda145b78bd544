/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest debugging by KVM (Documentation/virt/kvm/api.rst, 4.87 KVM_SET_GUEST_DEBUG, 4.33 and 4.34
 * KVM_GET_DEBUGREGS and KVM_SET_DEBUGREGS), and exceptions for the guest. Debug exits go to the
 * `debug` handler of struct vcpu_handlers.
 *
 * The ioctls wait until KVM_RUN has ended, so all functions of a vCPU are for its thread. Another
 * thread kicks the vCPU and lets its `kicked` handler call them.
 */
#ifndef KVMSCOPE_KVM_VCPU_DEBUG_H
#define KVMSCOPE_KVM_VCPU_DEBUG_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vcpu;
struct vm;

/* True if single steps can block interrupts (KVM_GUESTDBG_BLOCKIRQ, Linux 5.16). */
bool vm_can_block_interrupts(const struct vm *vm);

/*
 * Sets debug registers and single-stepping from the next entry on; replaces the previous setting.
 * Software breakpoints are not affected: KVM has one control word for both, but their users are
 * independent. -EBUSY without a message if KVM_GUESTDBG_INJECT_DB is requested while another
 * exception is pending, else an errno of the ioctl.
 */
int vcpu_set_guest_debug(struct vcpu *vcpu, const struct kvm_guest_debug *debug);

/*
 * ON: INT3 in the guest (0xCC; not INT1, not the two-byte INT 3) causes a debug exit with
 * run->debug.arch.exception 3 and RIP at the instruction. Otherwise it is the guest's own #BP. Does
 * not affect vcpu_set_guest_debug().
 */
int vcpu_set_software_breakpoints(struct vcpu *vcpu, bool on);

/*
 * Delivers to the guest the #BP of the INT3 that caused the exit, with RIP after it.
 * vcpu_set_registers() would cancel it until the next entry.
 */
int vcpu_inject_breakpoint(struct vcpu *vcpu);

/*
 * Exceptions that the VMM raises because it has executed an instruction in place of the processor.
 * Call them after vcpu_set_registers(), which would cancel them. Vectors: SDM vol. 3A table 6-1.
 */
#define VECTOR_BP 3
#define VECTOR_UD 6
#define VECTOR_GP 13

/* A fault with an error code at the current RIP. The errors of KVM_SET_VCPU_EVENTS. */
int vcpu_inject_fault(struct vcpu *vcpu, uint8_t vector, uint32_t error_code);

/* #UD, which has no error code, at the current RIP. The errors of KVM_SET_VCPU_EVENTS. */
int vcpu_inject_undefined(struct vcpu *vcpu);

/* The #DB after an instruction executed with RFLAGS.TF: DR6.BS (SDM vol. 3B 18.3.1.4). */
int vcpu_inject_single_step(struct vcpu *vcpu);

/* DR0 to DR3, DR6 and DR7 as the guest sees them, independent of KVM_SET_GUEST_DEBUG. */
int vcpu_get_debug_registers(struct vcpu *vcpu, struct kvm_debugregs *registers);
int vcpu_set_debug_registers(struct vcpu *vcpu, const struct kvm_debugregs *registers);

/*
 * Copies up to SIZE bytes at the linear ADDRESS in the vCPU's current address space (KVM_TRANSLATE,
 * api.rst 4.3). Returns the number of bytes read.
 */
size_t vcpu_read_virtual(struct vcpu *vcpu, uint64_t address, void *to, size_t size);

#endif
