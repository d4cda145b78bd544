// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/vcpu_debug.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"

bool vm_can_block_interrupts(const struct vm *vm)
{
	return vm_capability(vm, KVM_CAP_SET_GUEST_DEBUG2) & KVM_GUESTDBG_BLOCKIRQ;
}

static int failed(const struct vcpu *vcpu, const char *what)
{
	int error = errno;

	return error_set(-error, "vCPU %u: this host's KVM refused %s: %s; see kvmscope doctor", vcpu->index,
			 what, strerror(error));
}

int vcpu_set_guest_debug(struct vcpu *vcpu, const struct kvm_guest_debug *debug)
{
	assert(vcpu_on_thread(vcpu));
	if (!ioctl(vcpu->fd, KVM_SET_GUEST_DEBUG, debug))
		return 0;
	return errno == EBUSY ? -EBUSY : failed(vcpu, "breakpoints (KVM_SET_GUEST_DEBUG)");
}

int vcpu_get_debug_registers(struct vcpu *vcpu, struct kvm_debugregs *registers)
{
	assert(vcpu_on_thread(vcpu));
	if (ioctl(vcpu->fd, KVM_GET_DEBUGREGS, registers))
		return failed(vcpu, "its debug registers (KVM_GET_DEBUGREGS)");
	return 0;
}

int vcpu_set_debug_registers(struct vcpu *vcpu, const struct kvm_debugregs *registers)
{
	assert(vcpu_on_thread(vcpu));
	if (ioctl(vcpu->fd, KVM_SET_DEBUGREGS, registers))
		return failed(vcpu, "its debug registers (KVM_SET_DEBUGREGS)");
	return 0;
}
