/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PMU of a running vCPU: registers (guest_pmu.h), run time (pmu_time.h), and PMIs through the
 * LAPIC (vmm/kvm/lapic.h). It is vcpu->pmu.
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

/* Number of overflows by their effect. */
struct pmu_vcpu_statistics {
	uint64_t nmis, vectors;        /* PMIs raised */
	uint64_t masked;               /* suppressed by LVTPC */
	uint64_t late_ns, late_ns_max; /* guest run time since the overflow: sum, and maximum */
	uint64_t msr_accesses;         /* exits for RDMSR and WRMSR of the PMU */
};

/* The model for vendor and family in TABLE, the only one that a guest searches for. -ENOTSUP with
 * a message for an unsupported vendor. */
int pmu_vcpu_model(struct cpuid_table *table, enum pmu_model *model);

/* The MSRs of MODEL, *COUNT ranges: those of its counters and, on Intel, IA32_DEBUGCTL. */
const struct msr_range *pmu_vcpu_msrs(enum pmu_model model, size_t *count);

/*
 * For struct vcpu_handlers: a PMU based on filtered MSRs, which vcpu_create() adds to each vCPU. It
 * counts with the host's counters (pmu_host.h) if there are any, and derives the rest from run
 * time. Frequencies: core and reference cycles have that of the guest's TSC (KVM_GET_TSC_KHZ), as
 * on a processor that neither saves power nor boosts. Bus cycles have that of CPUID 15H, or if it
 * has none (as on KVM) the 1 GHz of KVM's LAPIC timer (arch/x86/kvm/lapic.h, APIC_BUS_CYCLE_NS).
 * vcpu_create() fails with -ENOTSUP if a frequency is unknown or MSRs cannot be filtered. A timer
 * that fails ends the guest with VCPU_END_HOST_ERROR.
 */
extern const struct vcpu_pmu_operations pmu_vcpu_emulated;

/* Its operations, for others that add to them. */
int pmu_vcpu_add(struct vcpu *vcpu, struct cpuid_table *table);
void pmu_vcpu_destroy(struct vcpu *vcpu);
void pmu_vcpu_enter(struct vcpu *vcpu);
void pmu_vcpu_leave(struct vcpu *vcpu);

/* Its create operation with PERF instead of the kernel's perf; NULL: derived cycles only. For
 * tests. */
int pmu_vcpu_create(struct vcpu *vcpu, struct cpuid_table *table, const struct pmu_host_perf *perf);

/* RDPMC of counter INDEX (the guest's ECX) now, for a trapped RDPMC. False: #GP(0). The caller
 * checks CR4.PCE and CPL. */
bool pmu_vcpu_read_counter(struct vcpu *vcpu, uint32_t index, uint64_t *value);

/* The same for the guest's RDMSR and WRMSR. False: #GP(0). */
bool pmu_vcpu_read_msr(struct vcpu *vcpu, uint32_t index, uint64_t *value);
bool pmu_vcpu_write_msr(struct vcpu *vcpu, uint32_t index, uint64_t value);

/* As after RESET: see pmu_reset(). Another thread may run the vCPU next. */
void pmu_vcpu_reset(struct vcpu *vcpu);
/* All registers of the PMU; LVTPC is the LAPIC's. See pmu_restore() for accepted states. */
void pmu_vcpu_save(struct vcpu *vcpu, struct pmu_state *state);
int pmu_vcpu_restore(struct vcpu *vcpu, const void *saved, size_t size);

void pmu_vcpu_statistics(const struct vcpu *vcpu, struct pmu_vcpu_statistics *statistics);

#endif
