/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/msr_filter.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/vm.h"

static int failed(const char *what)
{
	int error = errno;

	return error_set(-error, "this host's KVM refused %s: %s; see kvmscope doctor", what,
			 strerror(error));
}

static int exit_for_filtered(const struct vm *vm)
{
	struct kvm_enable_cap exits = { .cap = KVM_CAP_X86_USER_SPACE_MSR,
					.args = { KVM_MSR_EXIT_REASON_FILTER } };

	if (!vm_capability(vm, KVM_CAP_X86_USER_SPACE_MSR) ||
	    !vm_capability(vm, KVM_CAP_X86_MSR_FILTER))
		return error_set(-ENOTSUP, "this host's KVM leaves no MSR to user space "
					   "(KVM_CAP_X86_MSR_FILTER); it came with Linux 5.10");
	return ioctl(vm->vm_fd, KVM_ENABLE_CAP, &exits)
		       ? failed("exits for MSRs (KVM_CAP_X86_USER_SPACE_MSR)")
		       : 0;
}

int vm_filter_msrs(struct vm *vm, const struct msr_range *ranges, size_t count)
{
	static uint8_t denied[MSR_RANGE_COUNT_MAX / 8]; /* a bit of 1 would let KVM have it */
	struct kvm_msr_filter filter = { .flags = KVM_MSR_FILTER_DEFAULT_ALLOW };
	int error = exit_for_filtered(vm);

	_Static_assert(MSR_RANGES_MAX == KVM_MSR_FILTER_MAX_RANGES, "as many as KVM takes");
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
		       ? failed("a filter of MSRs (KVM_X86_SET_MSR_FILTER)")
		       : 0;
}
