/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/vm_filter.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/vm.h"

static int exit_for_filtered(const struct vm *vm)
{
	struct kvm_enable_cap exits = { .cap = KVM_CAP_X86_USER_SPACE_MSR,
					.args = { KVM_MSR_EXIT_REASON_FILTER } };

	if (!vm_capability(vm, KVM_CAP_X86_USER_SPACE_MSR) ||
	    !vm_capability(vm, KVM_CAP_X86_MSR_FILTER))
		return error_set(-ENOTSUP, "this host's KVM has no MSR exits to user space "
					   "(KVM_CAP_X86_MSR_FILTER needs Linux 5.10)");
	return ioctl(vm->vm_fd, KVM_ENABLE_CAP, &exits)
		       ? vm_refused("exits for MSRs (KVM_CAP_X86_USER_SPACE_MSR)")
		       : 0;
}

int vm_filter_msrs(struct vm *vm, const struct msr_range *ranges, size_t count)
{
	static uint8_t denied[MSR_RANGE_COUNT_MAX / 8]; /* all 0: KVM handles none of them */
	struct kvm_msr_filter filter = { .flags = KVM_MSR_FILTER_DEFAULT_ALLOW };
	int error = exit_for_filtered(vm);

	_Static_assert(MSR_RANGES_MAX == KVM_MSR_FILTER_MAX_RANGES, "KVM's limit");
	assert(count <= MSR_RANGES_MAX);
	if (error)
		return error;
	for (size_t i = 0; i < count; i++) {
		assert(ranges[i].count <= MSR_RANGE_COUNT_MAX);
		filter.ranges[i] = (struct kvm_msr_filter_range){ .flags = KVM_MSR_FILTER_READ |
									   KVM_MSR_FILTER_WRITE,
								  .base = ranges[i].first,
								  .nmsrs = ranges[i].count,
								  .bitmap = denied };
	}
	return ioctl(vm->vm_fd, KVM_X86_SET_MSR_FILTER, &filter)
		       ? vm_refused("a filter of MSRs (KVM_X86_SET_MSR_FILTER)")
		       : 0;
}

int vm_deny_events(const struct vm *vm, const uint64_t *events, size_t count)
{
	union {
		struct kvm_pmu_event_filter filter;
		uint8_t bytes[sizeof(struct kvm_pmu_event_filter) +
			      EVENT_FILTER_MAX * sizeof(uint64_t)];
	} deny = { .filter = { .action = KVM_PMU_EVENT_DENY, .nevents = (uint32_t)count } };

	assert(count <= EVENT_FILTER_MAX);
	if (!vm_capability(vm, KVM_CAP_PMU_EVENT_FILTER))
		return error_set(-ENOTSUP, "this host's KVM cannot hide events from a guest "
					   "(KVM_CAP_PMU_EVENT_FILTER needs Linux 5.3)");
	memcpy(deny.bytes + sizeof(deny.filter), events, count * sizeof(*events));
	if (ioctl(vm->vm_fd, KVM_SET_PMU_EVENT_FILTER, &deny.filter))
		return error_set(-errno,
				 "KVM refused a filter of %zu events for the guest's PMU: %m",
				 count);
	return 0;
}
