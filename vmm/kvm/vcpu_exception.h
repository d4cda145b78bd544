/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exceptions of a guest's own that its VMM has to raise, since it executed an
 * instruction in the processor's place. On the vCPU's thread, from a handler,
 * behind vcpu_set_registers(), which would take them back.
 */
#ifndef KVMSCOPE_KVM_VCPU_EXCEPTION_H
#define KVMSCOPE_KVM_VCPU_EXCEPTION_H

#include <stdint.h>

struct vcpu;

#define VECTOR_BP 3 /* SDM vol. 3A table 6-1, as the next ones */
#define VECTOR_UD 6
#define VECTOR_GP 13

/* A fault with an error code, at the present RIP. The errors of KVM_SET_VCPU_EVENTS. */
int vcpu_inject_fault(struct vcpu *vcpu, uint8_t vector, uint32_t error_code);

/* #UD, which has no error code, at the present RIP. The errors of KVM_SET_VCPU_EVENTS. */
int vcpu_inject_undefined(struct vcpu *vcpu);

/* The #DB behind an instruction that was executed with RFLAGS.TF: DR6.BS (SDM vol. 3B 18.3.1.4). */
int vcpu_inject_single_step(struct vcpu *vcpu);

#endif
