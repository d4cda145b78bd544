/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/vcpu_exception.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vcpu_debug.h"

#define DR6_BS (1ull << 14)

static int failed(const struct vcpu *vcpu, const char *what)
{
	int error = errno;

	return error_set(
		-error, "vCPU %u: this host's KVM refused an exception of the guest's own (%s): %s",
		vcpu->index, what, strerror(error));
}

static int inject(struct vcpu *vcpu, uint8_t vector, bool has_error_code, uint32_t error_code)
{
	struct kvm_vcpu_events events;

	assert(vcpu_on_thread(vcpu));
	if (ioctl(vcpu->fd, KVM_GET_VCPU_EVENTS, &events))
		return failed(vcpu, "KVM_GET_VCPU_EVENTS");
	events.exception.injected = 1;
	events.exception.nr = vector;
	events.exception.has_error_code = has_error_code;
	events.exception.error_code = error_code;
	if (ioctl(vcpu->fd, KVM_SET_VCPU_EVENTS, &events))
		return failed(vcpu, "KVM_SET_VCPU_EVENTS");
	return 0;
}

int vcpu_inject_fault(struct vcpu *vcpu, uint8_t vector, uint32_t error_code)
{
	return inject(vcpu, vector, true, error_code);
}

int vcpu_inject_undefined(struct vcpu *vcpu)
{
	return inject(vcpu, VECTOR_UD, false, 0);
}

int vcpu_inject_single_step(struct vcpu *vcpu)
{
	struct kvm_debugregs registers;
	int error = vcpu_get_debug_registers(vcpu, &registers);

	registers.dr6 |= DR6_BS;
	if (!error)
		error = vcpu_set_debug_registers(vcpu, &registers);
	return error ? error : vcpu_inject_debug(vcpu);
}
