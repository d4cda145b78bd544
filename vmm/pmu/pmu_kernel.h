/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PMU that KVM makes from the host's counters, and who has what of them.
 *
 * The guest has every counter that CPUID shows it. KVM backs each that is switched on with a
 * perf event pinned to the vCPU's thread that counts in the guest alone
 * (arch/x86/kvm/pmu.c, pmc_reprogram_counter()).
 *
 * Sampling has none: its clock is a timer (vmm/sample/sample_clock.h), so that it neither takes a
 * counter from the guest nor shows it other counts.
 *
 * Others on the host have what is left. Their flexible events share it. Events that are pinned to
 * a CPU, as the NMI watchdog's, come before the guest's: where they leave too few counters, one of
 * the guest's stands still, which KVM tells nobody.
 *
 * The host alone has the events listed in pmu_kernel.c: those with a register that all
 * events of a core share, of which a guest's would take hold without being able to set it, and
 * the numbers that mean something to perf only. KVM's filter keeps them from the guest, which
 * sees a counter that stands still; they would have counted nothing of use.
 */
#ifndef KVMSCOPE_PMU_PMU_KERNEL_H
#define KVMSCOPE_PMU_PMU_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/kvm/vm_filter.h"
#include "vmm/pmu/guest_pmu.h"

struct vcpu_pmu_operations;
struct vm;

/* For struct vcpu_handlers. vcpu_create() has the errors of pmu_kernel_reserve() and
 * pmu_vcpu_model(). */
extern const struct vcpu_pmu_operations pmu_kernel;

/* What MODEL's host keeps, as vm_deny_events() wants it. How many. */
size_t pmu_kernel_reserved(enum pmu_model model, uint64_t events[EVENT_FILTER_MAX]);

/* Keeps it in all of VM. The errors of vm_deny_events(). */
int pmu_kernel_reserve(const struct vm *vm, enum pmu_model model);

#endif
