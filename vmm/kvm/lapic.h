/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The in-kernel LAPIC of a vCPU: its lines as firmware leaves them, and the
 * interrupt of its performance counters, which a PMU outside of KVM has to
 * raise by itself (SDM vol. 3A 11.5.1, APM vol. 2 16.4).
 */
#ifndef KVMSCOPE_KVM_LAPIC_H
#define KVMSCOPE_KVM_LAPIC_H

#include <stdbool.h>

struct vcpu;

/* The PIC on LINT0, NMI on LINT1 (MultiProcessor Specification 1.4, 3.6.2). Before the vCPU runs.
 */
int lapic_set_lines(struct vcpu *vcpu);

/* What became of a PMI. */
enum lapic_pmi {
	LAPIC_PMI_NMI,
	LAPIC_PMI_VECTOR,
	LAPIC_PMI_MASKED,  /* by LVTPC, or the LAPIC is switched off */
	LAPIC_PMI_IGNORED, /* LVTPC asks for something that is neither NMI nor a fixed vector of 16
			      or more */
	LAPIC_PMI_FAILED,  /* the message is set */
};

/*
 * Raises the PMI as LVTPC says. With SETS_MASK, as Intel's do, LVTPC's mask
 * bit is set by that (SDM vol. 3B, "Counter Overflow Interrupt"; AMD's leave it). KVM
 * takes the bit alone in x2APIC mode; in xAPIC mode only together with all the LAPIC's
 * state, where an interrupt from another thread would be lost that comes in the moment
 * between reading and writing it. So there it is set only if the VM has one
 * vCPU, with vm_set_irq() held off, and with the PIT's pin of the I/O APIC masked; else it stays
 * clear. On the vCPU's thread, outside of KVM_RUN.
 */
enum lapic_pmi lapic_raise_pmi(struct vcpu *vcpu, bool sets_mask);

#endif
