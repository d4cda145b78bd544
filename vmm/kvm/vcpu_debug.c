/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/vcpu_debug.h"

#include <assert.h>
#include <errno.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/guest_ram.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"

#define PAGE_SIZE_4K 4096u
#define DR6_BS       (1ull << 14)

bool vm_can_block_interrupts(const struct vm *vm)
{
	return vm_capability(vm, KVM_CAP_SET_GUEST_DEBUG2) & KVM_GUESTDBG_BLOCKIRQ;
}

/* Sets both parts of the control word, and ONCE for the next entry only. */
static int set_both(struct vcpu *vcpu, uint32_t once)
{
	struct kvm_guest_debug debug = vcpu->debug;

	assert(vcpu_on_thread(vcpu));
	debug.control |= once;
	if (vcpu->software_breakpoints)
		debug.control |= KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_SW_BP;
	if (!ioctl(vcpu->fd, KVM_SET_GUEST_DEBUG, &debug))
		return 0;
	return errno == EBUSY ? -EBUSY : vcpu_refused(vcpu, "breakpoints (KVM_SET_GUEST_DEBUG)");
}

int vcpu_set_guest_debug(struct vcpu *vcpu, const struct kvm_guest_debug *debug)
{
	assert(!(debug->control & (KVM_GUESTDBG_USE_SW_BP | KVM_GUESTDBG_INJECT_BP)));
	vcpu->debug = *debug;
	vcpu->debug.control &= ~(uint32_t)KVM_GUESTDBG_INJECT_DB;
	return set_both(vcpu, debug->control & KVM_GUESTDBG_INJECT_DB);
}

int vcpu_set_software_breakpoints(struct vcpu *vcpu, bool on)
{
	vcpu->software_breakpoints = on;
	return set_both(vcpu, 0);
}

static int inject_by_debug(struct vcpu *vcpu, uint32_t what, const char *name)
{
	int error = set_both(vcpu, KVM_GUESTDBG_ENABLE | what);

	if (error == -EBUSY)
		return error_set(
			error,
			"vCPU %u: cannot inject the guest's own %s: another exception is pending",
			vcpu->index, name);
	return error;
}

int vcpu_inject_breakpoint(struct vcpu *vcpu)
{
	return inject_by_debug(vcpu, KVM_GUESTDBG_INJECT_BP, "#BP");
}

int vcpu_get_debug_registers(struct vcpu *vcpu, struct kvm_debugregs *registers)
{
	assert(vcpu_on_thread(vcpu));
	return vcpu_ioctl(vcpu, KVM_GET_DEBUGREGS, registers,
			  "its debug registers (KVM_GET_DEBUGREGS)");
}

int vcpu_set_debug_registers(struct vcpu *vcpu, const struct kvm_debugregs *registers)
{
	assert(vcpu_on_thread(vcpu));
	return vcpu_ioctl(vcpu, KVM_SET_DEBUGREGS, registers,
			  "its debug registers (KVM_SET_DEBUGREGS)");
}

size_t vcpu_read_virtual(struct vcpu *vcpu, uint64_t address, void *to, size_t size)
{
	size_t done = 0;

	assert(vcpu_on_thread(vcpu));
	while (done < size) {
		struct kvm_translation translation = { .linear_address = address + done };
		size_t part = PAGE_SIZE_4K - ((address + done) & (PAGE_SIZE_4K - 1));

		if (part > size - done)
			part = size - done;
		if (ioctl(vcpu->fd, KVM_TRANSLATE, &translation) || !translation.valid ||
		    memory_read(&vcpu->vm->memory, translation.physical_address,
				(uint8_t *)to + done, part))
			break;
		done += part;
	}
	return done;
}

static int inject_fault(struct vcpu *vcpu, uint8_t vector, bool has_error_code, uint32_t error_code)
{
	struct kvm_vcpu_events events;
	int error;

	assert(vcpu_on_thread(vcpu));
	error = vcpu_ioctl(vcpu, KVM_GET_VCPU_EVENTS, &events,
			   "an exception (KVM_GET_VCPU_EVENTS)");
	if (error)
		return error;
	events.exception.injected = 1;
	events.exception.nr = vector;
	events.exception.has_error_code = has_error_code;
	events.exception.error_code = error_code;
	return vcpu_ioctl(vcpu, KVM_SET_VCPU_EVENTS, &events, "an exception (KVM_SET_VCPU_EVENTS)");
}

int vcpu_inject_fault(struct vcpu *vcpu, uint8_t vector, uint32_t error_code)
{
	return inject_fault(vcpu, vector, true, error_code);
}

int vcpu_inject_undefined(struct vcpu *vcpu)
{
	return inject_fault(vcpu, VECTOR_UD, false, 0);
}

int vcpu_inject_single_step(struct vcpu *vcpu)
{
	struct kvm_debugregs registers;
	int error = vcpu_get_debug_registers(vcpu, &registers);

	registers.dr6 |= DR6_BS;
	if (!error)
		error = vcpu_set_debug_registers(vcpu, &registers);
	return error ? error : inject_by_debug(vcpu, KVM_GUESTDBG_INJECT_DB, "#DB");
}
