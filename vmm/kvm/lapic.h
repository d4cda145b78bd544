/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The performance monitoring interrupt (PMI) of a vCPU's in-kernel LAPIC. A PMU that is not KVM's
 * raises it here (SDM vol. 3A 11.5.1, APM vol. 2 16.4).
 */
#ifndef KVMSCOPE_KVM_LAPIC_H
#define KVMSCOPE_KVM_LAPIC_H

#include <stdbool.h>

struct vcpu;

/* Result of lapic_raise_pmi(). */
enum lapic_pmi {
	LAPIC_PMI_NMI,
	LAPIC_PMI_VECTOR,
	LAPIC_PMI_MASKED,  /* LVTPC is masked, or the LAPIC is disabled */
	LAPIC_PMI_IGNORED, /* LVTPC's delivery mode is neither NMI nor fixed with a vector of 16 or
			      more */
	LAPIC_PMI_FAILED,  /* an ioctl failed; error_message() is set */
};

/*
 * Delivers the PMI as LVTPC specifies. SETS_MASK: as on Intel, delivery sets LVTPC's mask bit (SDM
 * vol. 3B, "Counter Overflow Interrupt"); AMD leaves it clear.
 *
 * In x2APIC mode KVM can set this bit alone. In xAPIC mode it can only replace the whole LAPIC
 * state, which would lose an interrupt that arrives from another thread between reading and writing
 * it. There the bit is set only if the VM has one vCPU and the PIT's pin of the I/O APIC is masked,
 * with vm_set_irq() locked out; otherwise it stays clear. On the vCPU's thread, outside of KVM_RUN.
 */
enum lapic_pmi lapic_raise_pmi(struct vcpu *vcpu, bool sets_mask);

#endif
