/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDPMC, with which Linux reads its counters, for an emulated PMU. KVM has no exit for it: without
 * a PMU of its own it raises #GP. So the RDPMC instructions of the guest's kernel are located
 * (vmm/guest/linux/rdpmc_sites.h) and replaced by INT3, and their effect is emulated here. An INT3
 * of the guest's own also exits and is delivered to the guest.
 *
 * The kernel is searched when the guest first accesses a PMU MSR. Linux is then in an initcall of
 * its boot processor (init_hw_perf_events()), its code is final, and no counter runs. Later
 * accesses check that it is still the same kernel, because a reset or a kexec starts another one.
 *
 * If RDPMC cannot be trapped the PMU is hidden: its MSRs raise #GP, Linux considers the PMU broken
 * and runs without, and a warning gives the reason. A guest whose kernel is not at Linux's
 * addresses has the MSRs only.
 *
 * KVM answers RDPMC of user programs (CR4.PCE) with #GP, or with 0 if its own PMU is off (kvm_amd
 * of Linux 6.1; arch/x86/kvm/pmu.c, kvm_pmu_rdpmc()), which programs would use as a count. So
 * Linux's own switch for it (rdpmc_sites.h) is set to 0 after boot, as the guest's root may do.
 *
 * Limits: modules loaded later are not searched; a guest that reads its own code reads INT3; if the
 * guest's root sets the switch again, RDPMC has KVM's result.
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
	struct vm *vm;                 /* with all its vCPUs */
	const struct guest_view *view; /* of its memory */
	void (*registers)(struct vcpu *vcpu, struct guest_registers *registers);
	bool int3; /* this KVM exits for INT3 (probe "debug.int3"); otherwise Linux guests have no
		      PMU */
};

struct rdpmc_traps_statistics {
	uint64_t completed;         /* RDPMC instructions */
	uint64_t guest_breakpoints; /* the guest's own INT3 */
};

/* Enables software breakpoints on all vCPUs if options.int3 is set, and sets VM->rdpmc_traps.
 * The errors of KVM_SET_GUEST_DEBUG. */
int rdpmc_traps_create(struct rdpmc_traps **traps, const struct rdpmc_traps_options *options);
/* NULL is a no-op. */
void rdpmc_traps_destroy(struct rdpmc_traps *traps);

/* For tests: installs traps at SITES of the vCPU's current kernel. -EFAULT or -ENOSPC with a
 * message. The vCPU's thread. */
int rdpmc_traps_arm(struct rdpmc_traps *traps, struct vcpu *vcpu, const struct rdpmc_sites *sites);

void rdpmc_traps_statistics(const struct rdpmc_traps *traps,
			    struct rdpmc_traps_statistics *statistics);

/* pmu_vcpu_emulated with RDPMC and hidden MSRs, for VMs that get traps before they run. */
extern const struct vcpu_pmu_operations rdpmc_traps_pmu;

#endif
