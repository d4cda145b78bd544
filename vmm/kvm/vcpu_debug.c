/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/vcpu_debug.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/guest_ram.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"

#define PAGE_SIZE_4K 4096u

bool vm_can_block_interrupts(const struct vm *vm)
{
	return vm_capability(vm, KVM_CAP_SET_GUEST_DEBUG2) & KVM_GUESTDBG_BLOCKIRQ;
}

static int failed(const struct vcpu *vcpu, const char *what)
{
	int error = errno;

	return error_set(-error, "vCPU %u: this host's KVM refused %s: %s; see kvmscope doctor",
			 vcpu->index, what, strerror(error));
}

/* Both parts together, with ONCE for the next entry alone. */
static int set_both(struct vcpu *vcpu, uint32_t once)
{
	struct kvm_guest_debug debug = vcpu->debug;

	assert(vcpu_on_thread(vcpu));
	debug.control |= once;
	if (vcpu->software_breakpoints)
		debug.control |= KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_SW_BP;
	if (!ioctl(vcpu->fd, KVM_SET_GUEST_DEBUG, &debug))
		return 0;
	return errno == EBUSY ? -EBUSY : failed(vcpu, "breakpoints (KVM_SET_GUEST_DEBUG)");
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

static int inject(struct vcpu *vcpu, uint32_t what, const char *name)
{
	int error = set_both(vcpu, KVM_GUESTDBG_ENABLE | what);

	if (error == -EBUSY)
		return error_set(
			error,
			"vCPU %u: a %s of the guest's own came while another exception was pending",
			vcpu->index, name);
	return error;
}

int vcpu_inject_breakpoint(struct vcpu *vcpu)
{
	return inject(vcpu, KVM_GUESTDBG_INJECT_BP, "#BP");
}

int vcpu_inject_debug(struct vcpu *vcpu)
{
	return inject(vcpu, KVM_GUESTDBG_INJECT_DB, "#DB");
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
