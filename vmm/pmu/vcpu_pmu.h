/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PMU of a vCPU that runs: registers (guest_pmu.h), time (pmu_time.h), and
 * PMIs through the LAPIC (vmm/kvm/lapic.h). vcpu->pmu is it.
 *
 *	pmu_vcpu_model, pmu_vcpu_msrs	any thread
 *	everything else			the vCPU's thread outside of KVM_RUN, or while it has none
 */
#ifndef KVMSCOPE_PMU_VCPU_PMU_H
#define KVMSCOPE_PMU_VCPU_PMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/kvm/vm_filter.h"
#include "vmm/pmu/guest_pmu.h"

struct cpuid_table;
struct pmu_host_perf;
struct pmu_vcpu;
struct vcpu;

/* How often each became of an overflow. */
struct pmu_vcpu_statistics {
	uint64_t nmis, vectors;        /* PMIs that were raised */
	uint64_t masked;               /* overflows that LVTPC let pass */
	uint64_t late_ns, late_ns_max; /* for how long the guest had run since all of these, since
					  one of them */
	uint64_t msr_accesses;         /* exits for RDMSR and WRMSR of the PMU */
};

/*
 * The model that goes with the vendor and family that TABLE shows: else the
 * guest would look for another. -ENOTSUP, with its message, for a vendor whose
 * PMU this one can not be.
 */
int pmu_vcpu_model(struct cpuid_table *table, enum pmu_model *model);

/* What MODEL has of MSRs: those of its counters, and of Intel's IA32_DEBUGCTL. COUNT of them. */
const struct msr_range *pmu_vcpu_msrs(enum pmu_model model, size_t *count);

/*
 * For struct vcpu_handlers: the PMU by filtered MSRs, which vcpu_create() gives to each
 * vCPU. It counts by the host's counters (pmu_host.h) where there are any, and by the time
 * what they do not count. The time's frequencies: core cycles and reference cycles that of the
 * guest's TSC (KVM_GET_TSC_KHZ), so core cycles are those of a processor that neither saves power
 * nor boosts; bus cycles that of CPUID 15H, or where that tells none (as KVM does) the 1 GHz of
 * KVM's LAPIC timer (arch/x86/kvm/lapic.h, APIC_BUS_CYCLE_NS). vcpu_create() fails
 * with -ENOTSUP where one is not known or the MSRs can not be filtered. A timer
 * that fails ends the guest, VCPU_END_HOST_ERROR.
 */
extern const struct vcpu_pmu_operations pmu_vcpu_emulated;

/* Its create, with PERF for the kernel's perf; NULL: by the time alone. For tests. */
int pmu_vcpu_create(struct vcpu *vcpu, struct cpuid_table *table, const struct pmu_host_perf *perf);

/*
 * RDPMC of counter INDEX, the guest's ECX, as of now. False means #GP(0); CR4.PCE
 * and the CPL are for the caller to check. What completes a trapped RDPMC.
 */
bool pmu_vcpu_read_counter(struct vcpu *vcpu, uint32_t index, uint64_t *value);

/* The same as the guest's RDMSR and WRMSR. False: #GP(0). */
bool pmu_vcpu_read_msr(struct vcpu *vcpu, uint32_t index, uint64_t *value);
bool pmu_vcpu_write_msr(struct vcpu *vcpu, uint32_t index, uint64_t value);

/* As after RESET: see pmu_reset(). The vCPU's next thread may be another one. */
void pmu_vcpu_reset(struct vcpu *vcpu);
/* All of its registers; see pmu_restore() for what is taken. LVTPC is the LAPIC's. */
void pmu_vcpu_save(struct vcpu *vcpu, struct pmu_state *state);
int pmu_vcpu_restore(struct vcpu *vcpu, const void *saved, size_t size);

void pmu_vcpu_statistics(const struct vcpu *vcpu, struct pmu_vcpu_statistics *statistics);

#endif
