/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/tsc_frequency.h"

#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/vcpu.h"

static int vcpu_offset(const struct vcpu *vcpu, uint64_t *offset)
{
	struct kvm_device_attr attribute = {
		.group = KVM_VCPU_TSC_CTRL,
		.attr = KVM_VCPU_TSC_OFFSET,
		.addr = (uintptr_t)offset,
	};

	if (!ioctl(vcpu->fd, KVM_GET_DEVICE_ATTR, &attribute))
		return 0;
	return error_set(-ENXIO, "this KVM does not tell the offset of vCPU %u's TSC: %s",
			 vcpu->index, strerror(errno));
}

int vm_tsc_offset(const struct vm *vm, uint64_t *offset)
{
	for (unsigned int i = 0; i < vm->vcpu_count; i++) {
		uint64_t other;
		int error = vcpu_offset(vm->vcpus[i], &other);

		if (error)
			return error;
		if (i && other != *offset)
			return error_set(-ENODATA, "the TSCs of vCPUs 0 and %u differ", i);
		*offset = other;
	}
	return vm->vcpu_count ? 0 : error_set(-ENODATA, "there is no vCPU");
}
