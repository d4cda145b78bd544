/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/reset_state.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/kvm/msr.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"

/* All state of a vCPU that a guest can change. */
struct vcpu_state {
	struct kvm_nested_state nested; /* no nested guest is running; with vm->nested */
	struct kvm_mp_state mp_state;
	struct kvm_regs registers;
	struct kvm_sregs special_registers;
	struct kvm_xsave xsave;
	struct kvm_xcrs xcrs;
	struct kvm_debugregs debug_registers;
	struct kvm_lapic_state lapic;
	struct kvm_vcpu_events events;
	struct kvm_msr_entry *msrs; /* owned; only readable ones */
	size_t msr_count;
};

/* KVM_IRQCHIP_PIC_MASTER, _PIC_SLAVE and _IOAPIC */
#define CHIPS 3

struct reset_state {
	struct kvm_irqchip chips[CHIPS];
	struct kvm_pit_state2 pit;
	unsigned int vcpu_count;
	struct vcpu_state vcpus[];
};

#define MSR_TSC 0x10 /* IA32_TIME_STAMP_COUNTER */

/* Upper bound for the exits of one interrupted instruction. */
#define EXITS_MAX 16

/* In restore order: later parts depend on earlier ones, and KVM_SET_REGS drops events. */
static const struct part {
	unsigned long get, set;
	size_t offset;
	const char *name;
	int capability; /* 0: always present */
} parts[] = {
	/* KVM_GET_MP_STATE also accepts a pending INIT or SIPI, so that none is left after a reset.
	 */
	{ KVM_GET_MP_STATE, KVM_SET_MP_STATE, offsetof(struct vcpu_state, mp_state), "KVM_MP_STATE",
	  0 },
	{ KVM_GET_REGS, KVM_SET_REGS, offsetof(struct vcpu_state, registers), "KVM_REGS", 0 },
	{ KVM_GET_SREGS, KVM_SET_SREGS, offsetof(struct vcpu_state, special_registers), "KVM_SREGS",
	  0 },
	{ KVM_GET_XSAVE, KVM_SET_XSAVE, offsetof(struct vcpu_state, xsave), "KVM_XSAVE",
	  KVM_CAP_XSAVE },
	{ KVM_GET_XCRS, KVM_SET_XCRS, offsetof(struct vcpu_state, xcrs), "KVM_XCRS", KVM_CAP_XCRS },
	{ KVM_GET_DEBUGREGS, KVM_SET_DEBUGREGS, offsetof(struct vcpu_state, debug_registers),
	  "KVM_DEBUGREGS", KVM_CAP_DEBUGREGS },
	{ KVM_GET_LAPIC, KVM_SET_LAPIC, offsetof(struct vcpu_state, lapic), "KVM_LAPIC", 0 },
};

static bool has_part(const struct vcpu *vcpu, const struct part *part)
{
	return !part->capability || vm_capability(vcpu->vm, part->capability);
}

/* Indices of the MSRs of this KVM. The caller frees *LIST, also after an error. */
static int read_msr_list(struct kvm_msr_list **list, int kvm_fd)
{
	struct kvm_msr_list count = { .nmsrs = 0 };

	/* Fails with E2BIG and stores the number of MSRs. */
	if (!ioctl(kvm_fd, KVM_GET_MSR_INDEX_LIST, &count) || errno != E2BIG)
		return error_set(-EIO, "this host's KVM does not list its MSRs "
				       "(KVM_GET_MSR_INDEX_LIST)");
	*list = calloc(1, sizeof(**list) + count.nmsrs * sizeof((*list)->indices[0]));
	if (!*list)
		return error_set(-ENOMEM, "no memory for a list of MSRs");
	(*list)->nmsrs = count.nmsrs;
	if (ioctl(kvm_fd, KVM_GET_MSR_INDEX_LIST, *list))
		return error_set(-errno, "KVM_GET_MSR_INDEX_LIST failed: %m");
	return 0;
}

/* Skips MSRs that KVM lists but that the vCPU's CPUID does not have. */
static int save_msrs(struct vcpu_state *state, const struct vcpu *vcpu,
		     const struct kvm_msr_list *list)
{
	state->msrs = calloc(list->nmsrs + 1, sizeof(state->msrs[0]));
	if (!state->msrs)
		return error_set(-ENOMEM, "no memory for the MSRs of vCPU %u", vcpu->index);
	for (size_t i = 0; i < list->nmsrs; i++) {
		struct kvm_msr_entry *msr = &state->msrs[state->msr_count];
		uint64_t value;

		if (list->indices[i] == MSR_TSC || msr_get(vcpu->fd, list->indices[i], &value))
			continue;
		msr->index = list->indices[i];
		msr->data = value;
		state->msr_count++;
	}
	return 0;
}

static int save_vcpu(struct vcpu_state *state, struct vcpu *vcpu, const struct kvm_msr_list *list)
{
	assert(!atomic_load(&vcpu->thread_id));
	*state = (struct vcpu_state){ .nested.size = sizeof(state->nested) };
	if (vcpu->vm->nested && ioctl(vcpu->fd, KVM_GET_NESTED_STATE, &state->nested))
		return vcpu_refused(vcpu, "KVM_GET_NESTED_STATE");
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (has_part(vcpu, &parts[i]) &&
		    ioctl(vcpu->fd, parts[i].get, (uint8_t *)state + parts[i].offset))
			return vcpu_refused(vcpu, parts[i].name);
	if (ioctl(vcpu->fd, KVM_GET_VCPU_EVENTS, &state->events))
		return vcpu_refused(vcpu, "KVM_GET_VCPU_EVENTS");
	return save_msrs(state, vcpu, list);
}

/* Completes the access that caused the last exit, so that it has no effect after the reset. */
static void finish_instruction(struct vcpu *vcpu)
{
	for (int i = 0; i < EXITS_MAX; i++) {
		vcpu->run->immediate_exit = 1;
		if (ioctl(vcpu->fd, KVM_RUN, 0))
			break;
	}
	vcpu->run->immediate_exit = 0;
}

static int restore_parts(const struct vcpu_state *state, struct vcpu *vcpu)
{
	struct kvm_mp_state before;

	/* First: while a nested guest runs, the registers are the nested guest's. */
	if (vcpu->vm->nested && ioctl(vcpu->fd, KVM_SET_NESTED_STATE, &state->nested))
		return vcpu_refused(vcpu, "KVM_SET_NESTED_STATE");
	ioctl(vcpu->fd, KVM_GET_MP_STATE, &before);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (has_part(vcpu, &parts[i]) &&
		    ioctl(vcpu->fd, parts[i].set, (const uint8_t *)state + parts[i].offset))
			return vcpu_refused(vcpu, parts[i].name);
	vcpu->run->s.regs.regs = state->registers;
	vcpu->run->s.regs.sregs = state->special_registers;
	return 0;
}

/* Writes only changed MSRs: many can be read, but not written. */
static void restore_msrs(const struct vcpu_state *state, const struct vcpu *vcpu)
{
	for (size_t i = 0; i < state->msr_count; i++) {
		const struct kvm_msr_entry *msr = &state->msrs[i];
		uint64_t value;

		if (!msr_get(vcpu->fd, msr->index, &value) && value != msr->data &&
		    msr_set(vcpu->fd, msr->index, msr->data))
			log_debug("vCPU %u: MSR %#x keeps %#llx after the reset", vcpu->index,
				  msr->index, (unsigned long long)value);
	}
}

static int restore_vcpu(const struct vcpu_state *state, struct vcpu *vcpu)
{
	int error;

	assert(!atomic_load(&vcpu->thread_id));
	finish_instruction(vcpu);
	error = restore_parts(state, vcpu);
	if (error)
		return error;
	restore_msrs(state, vcpu);
	if (ioctl(vcpu->fd, KVM_SET_VCPU_EVENTS, &state->events))
		return vcpu_refused(vcpu, "KVM_SET_VCPU_EVENTS");
	vcpu->sample_due = 0;
	vcpu->end_requested = false;
	atomic_store(&vcpu->stop, false);
	return 0;
}

static int save_chips(struct reset_state *state, const struct vm *vm)
{
	for (unsigned int i = 0; i < CHIPS; i++) {
		state->chips[i].chip_id = i;
		if (ioctl(vm->vm_fd, KVM_GET_IRQCHIP, &state->chips[i]))
			return vm_refused("KVM_GET_IRQCHIP");
	}
	return ioctl(vm->vm_fd, KVM_GET_PIT2, &state->pit) ? vm_refused("KVM_GET_PIT2") : 0;
}

static int save_vcpus(struct reset_state *state, const struct vm *vm)
{
	struct kvm_msr_list *list = NULL;
	int error = read_msr_list(&list, vm->kvm_fd);

	for (; !error && state->vcpu_count < vm->vcpu_count; state->vcpu_count++)
		error = save_vcpu(&state->vcpus[state->vcpu_count], vm->vcpus[state->vcpu_count],
				  list);
	free(list);
	return error;
}

int reset_state_save(struct reset_state **result, const struct vm *vm)
{
	struct reset_state *state =
		calloc(1, sizeof(*state) + vm->vcpu_count * sizeof(state->vcpus[0]));
	int error;

	if (!state)
		return error_set(-ENOMEM, "no memory for the reset state of the VM");
	error = save_chips(state, vm);
	if (!error)
		error = save_vcpus(state, vm);
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
		free(state->vcpus[i].msrs);
	free(state);
}

int reset_state_restore(const struct reset_state *state, struct vm *vm)
{
	int error = 0;

	assert(state->vcpu_count == vm->vcpu_count);
	for (unsigned int i = 0; i < state->vcpu_count && !error; i++)
		error = restore_vcpu(&state->vcpus[i], vm->vcpus[i]);
	for (unsigned int i = 0; i < CHIPS && !error; i++)
		if (ioctl(vm->vm_fd, KVM_SET_IRQCHIP, &state->chips[i]))
			error = vm_refused("KVM_SET_IRQCHIP");
	if (!error && ioctl(vm->vm_fd, KVM_SET_PIT2, &state->pit))
		error = vm_refused("KVM_SET_PIT2");
	return error;
}
