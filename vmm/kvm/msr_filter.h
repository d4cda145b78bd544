/* SPDX-License-Identifier: Apache-2.0 */
/* MSRs that the guest reaches through us instead of through KVM. */
#ifndef KVMSCOPE_KVM_MSR_FILTER_H
#define KVMSCOPE_KVM_MSR_FILTER_H

#include <stddef.h>
#include <stdint.h>

struct vm;

/* As many as KVM_X86_SET_MSR_FILTER takes, each of MSR_RANGE_COUNT_MAX MSRs at most. */
#define MSR_RANGES_MAX      16
#define MSR_RANGE_COUNT_MAX 256

struct msr_range {
	uint32_t first, count;
};

/*
 * From now on each RDMSR and WRMSR of RANGES in the guest comes to the
 * handlers read_msr and write_msr of struct vcpu_handlers; replaces what was set
 * before. The VMM's own msr_get() and msr_set() go to KVM as before. KVM does not let go of
 * 0x800 to 0x8ff, those of the x2APIC (Documentation/virt/kvm/api.rst, 4.97
 * KVM_X86_SET_MSR_FILTER; 7.21 KVM_CAP_X86_USER_SPACE_MSR; Linux 5.10). Best
 * before the first vCPU is made. -ENOTSUP where this KVM has no such filter;
 * the errors of the ioctls.
 */
int vm_filter_msrs(struct vm *vm, const struct msr_range *ranges, size_t count);

#endif
