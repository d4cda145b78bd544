/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/event_filter.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/vm.h"

int vm_deny_events(const struct vm *vm, const uint64_t *events, size_t count)
{
	union {
		struct kvm_pmu_event_filter filter;
		uint8_t bytes[sizeof(struct kvm_pmu_event_filter) +
			      EVENT_FILTER_MAX * sizeof(uint64_t)];
	} of = { .filter = { .action = KVM_PMU_EVENT_DENY, .nevents = (uint32_t)count } };

	assert(count <= EVENT_FILTER_MAX);
	if (!vm_capability(vm, KVM_CAP_PMU_EVENT_FILTER))
		return error_set(-ENOTSUP,
				 "this host's KVM can not keep events of the host's from a guest "
				 "(KVM_CAP_PMU_EVENT_FILTER): it takes Linux 5.3");
	memcpy(of.bytes + sizeof(of.filter), events, count * sizeof(*events));
	if (ioctl(vm->vm_fd, KVM_SET_PMU_EVENT_FILTER, &of.filter))
		return error_set(-errno,
				 "KVM refused a filter of %zu events for the guest's PMU: %s",
				 count, strerror(errno));
	return 0;
}
