/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/reset_state.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vcpu_state.h"
#include "vmm/kvm/vm.h"

/* KVM_IRQCHIP_PIC_MASTER, _PIC_SLAVE and _IOAPIC */
#define CHIPS 3

struct reset_state {
	struct kvm_irqchip chips[CHIPS];
	struct kvm_pit_state2 pit;
	unsigned int vcpu_count;
	struct vcpu_state vcpus[];
};

static int refused(const char *what)
{
	int error = errno;

	return error_set(-error, "the VM can not be reset: this host's KVM refused %s: %s", what,
			 strerror(error));
}

static int take_chips(struct reset_state *state, const struct vm *vm)
{
	for (unsigned int i = 0; i < CHIPS; i++) {
		state->chips[i].chip_id = i;
		if (ioctl(vm->vm_fd, KVM_GET_IRQCHIP, &state->chips[i]))
			return refused("KVM_GET_IRQCHIP");
	}
	return ioctl(vm->vm_fd, KVM_GET_PIT2, &state->pit) ? refused("KVM_GET_PIT2") : 0;
}

static int take_vcpus(struct reset_state *state, const struct vm *vm)
{
	struct msr_list list;
	int error = msr_list_read(&list, vm->kvm_fd);

	for (; !error && state->vcpu_count < vm->vcpu_count; state->vcpu_count++)
		error = vcpu_state_take(&state->vcpus[state->vcpu_count],
					vm->vcpus[state->vcpu_count], &list);
	msr_list_free(&list);
	return error;
}

int reset_state_take(struct reset_state **result, const struct vm *vm)
{
	struct reset_state *state =
		calloc(1, sizeof(*state) + vm->vcpu_count * sizeof(state->vcpus[0]));
	int error;

	if (!state)
		return error_set(-ENOMEM, "no memory for the VM's state at a reset");
	error = take_chips(state, vm);
	if (!error)
		error = take_vcpus(state, vm);
	if (error)
		reset_state_free(state);
	else
		*result = state;
	return error;
}

void reset_state_free(struct reset_state *state)
{
	if (!state)
		return;
	for (unsigned int i = 0; i < state->vcpu_count; i++)
		vcpu_state_free(&state->vcpus[i]);
	free(state);
}

int reset_state_put(const struct reset_state *state, struct vm *vm)
{
	int error = 0;

	assert(state->vcpu_count == vm->vcpu_count);
	for (unsigned int i = 0; i < state->vcpu_count && !error; i++)
		error = vcpu_state_put(&state->vcpus[i], vm->vcpus[i]);
	for (unsigned int i = 0; i < CHIPS && !error; i++)
		if (ioctl(vm->vm_fd, KVM_SET_IRQCHIP, &state->chips[i]))
			error = refused("KVM_SET_IRQCHIP");
	if (!error && ioctl(vm->vm_fd, KVM_SET_PIT2, &state->pit))
		error = refused("KVM_SET_PIT2");
	return error;
}
