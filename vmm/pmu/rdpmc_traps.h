/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDPMC, by which Linux reads its counters, for a PMU that is emulated. KVM has
 * no exit for it: without a PMU of its own it raises #GP. So the RDPMC
 * instructions of the guest's kernel are found (vmm/guest/linux/rdpmc_sites.h), INT3
 * is put in their place, and what they do is done here. Every INT3 of the
 * guest's own comes here too and is given back to it.
 *
 * They are looked for when the guest first accesses an MSR of its PMU. Linux
 * is then in an initcall of its boot processor (init_hw_perf_events()), its
 * code is as it will stay, and no counter runs. At each access after that it is made sure
 * that the kernel is still the same one: a reset or a kexec brings another.
 *
 * Where they can not be trapped the PMU is hidden: its MSRs raise #GP, which
 * Linux takes for a PMU that does not work and goes without, and a warning
 * says why. A guest whose kernel does not lie where Linux's does has the MSRs
 * alone.
 *
 * A program's RDPMC (CR4.PCE) KVM answers by #GP, or by 0 where it has a PMU that is
 * switched off (kvm_amd of Linux 6.1; arch/x86/kvm/pmu.c, kvm_pmu_rdpmc()), which would be taken
 *for a count. So once a guest has booted, Linux's own switch for it (rdpmc_user.h) is put to 0, as
 *its root may do.
 *
 * What is not done: modules that were loaded later are not searched; INT3 is what the guest sees if
 *it reads its own code; a guest whose root puts the switch back has RDPMC as KVM answers it.
 *
 *	create, destroy	while no vCPU runs
 *	statistics	any thread
 *	the others	the vCPU's thread
 */
#ifndef KVMSCOPE_PMU_RDPMC_TRAPS_H
#define KVMSCOPE_PMU_RDPMC_TRAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/rdpmc_sites.h"
#include "vmm/kvm/vcpu.h"

struct rdpmc_traps;

struct rdpmc_traps_options {
	struct vm *vm;                 /* with all of its vCPUs */
	const struct guest_view *view; /* of its memory */
	void (*registers)(struct vcpu *vcpu, struct guest_registers *registers);
	bool int3; /* this KVM leaves the guest for INT3 (probe "debug.int3"); else no Linux has a
		      PMU */
};

struct rdpmc_traps_statistics {
	uint64_t completed;         /* RDPMC instructions */
	uint64_t guest_breakpoints; /* INT3 of the guest's own */
};

/*
 * Turns software breakpoints on in each vCPU, where there are any, and is
 * VM->rdpmc_traps from then on. The errors of KVM_SET_GUEST_DEBUG.
 */
int rdpmc_traps_create(struct rdpmc_traps **traps, const struct rdpmc_traps_options *options);
/* NULL is a no-op. */
void rdpmc_traps_destroy(struct rdpmc_traps *traps);

/* For tests: puts the traps of SITES, of the kernel that the vCPU is in. -EFAULT, -ENOSPC, each
 * with its message. The vCPU's thread. */
int rdpmc_traps_arm(struct rdpmc_traps *traps, struct vcpu *vcpu, const struct rdpmc_sites *sites);

void rdpmc_traps_statistics(const struct rdpmc_traps *traps,
			    struct rdpmc_traps_statistics *statistics);

/* pmu_vcpu_emulated, with RDPMC and hidden MSRs, for VMs that are joined with traps before they
 * run. */
extern const struct vcpu_pmu_operations rdpmc_traps_pmu;

#endif
