/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of a VM's PMU accesses: MSRs that leave KVM for user space, events KVM does not count. */
#ifndef KVMSCOPE_KVM_VM_FILTER_H
#define KVMSCOPE_KVM_VM_FILTER_H

#include <stddef.h>
#include <stdint.h>

struct vm;

/* Limits of KVM_X86_SET_MSR_FILTER, and KVM_PMU_EVENT_FILTER_MAX_EVENTS of arch/x86/kvm/pmu.c. */
#define MSR_RANGES_MAX      16
#define MSR_RANGE_COUNT_MAX 256
#define EVENT_FILTER_MAX    300

struct msr_range {
	uint32_t first, count;
};

/*
 * Routes the guest's RDMSR and WRMSR of RANGES to read_msr and write_msr of struct
 * vcpu_pmu_operations; replaces the previous filter. msr_get() and msr_set() still reach KVM. KVM
 * does not filter the x2APIC's 0x800 to 0x8ff (Documentation/virt/kvm/api.rst, 4.97
 * KVM_X86_SET_MSR_FILTER; 7.21 KVM_CAP_X86_USER_SPACE_MSR; Linux 5.10). Preferably before the first
 * vCPU is created. -ENOTSUP if this KVM has no such filter, or an errno of the ioctls.
 */
int vm_filter_msrs(struct vm *vm, const struct msr_range *ranges, size_t count);

/*
 * Stops general counters of the guest that select one of the COUNT EVENTS (at most
 * EVENT_FILTER_MAX); replaces the previous filter. Each event has event select and unit mask at
 * their place in the vendor's PerfEvtSel, all other bits 0. The guest gets no error, its counter
 * does not advance. Fixed counters are not affected (Documentation/virt/kvm/api.rst,
 * KVM_SET_PMU_EVENT_FILTER; Linux 5.3). -ENOTSUP if this KVM has no such filter, or an errno of the
 * ioctl. Any thread.
 */
int vm_deny_events(const struct vm *vm, const uint64_t *events, size_t count);

#endif
