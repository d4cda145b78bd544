/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PMU that KVM emulates with the host's counters, and how they are shared.
 *
 * The guest has all counters that CPUID shows. KVM backs each enabled one with a perf event, pinned
 * to the vCPU's thread, that counts only in the guest (arch/x86/kvm/pmu.c,
 * pmc_reprogram_counter()).
 *
 * Sampling uses no counter: its clock is a timer (vmm/sample/sample_clock.h), so it leaves all
 * counters to the guest and does not change its counts.
 *
 * Other users on the host get the remaining counters. Their flexible events share those. Events
 * pinned to a CPU, such as the NMI watchdog's, precede the guest's: if they leave too few counters,
 * one of the guest's does not advance, which KVM does not report.
 *
 * The events listed in pmu_kernel.c are reserved for the host: those with a register shared by all
 * events of a core, which a guest would occupy without being able to set it, and numbers with a
 * meaning in perf only. KVM's filter denies them to the guest, whose counter does not advance; they
 * would not have counted anything useful.
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

/* The reserved events of MODEL in the format of vm_deny_events(). Returns their number. */
size_t pmu_kernel_reserved(enum pmu_model model, uint64_t events[EVENT_FILTER_MAX]);

/* Reserves them for the whole VM. The errors of vm_deny_events(). */
int pmu_kernel_reserve(const struct vm *vm, enum pmu_model model);

#endif
