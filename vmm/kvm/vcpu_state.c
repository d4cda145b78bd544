/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/vcpu_state.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/kvm/msr.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"

#define MSR_TSC 0x10 /* IA32_TIME_STAMP_COUNTER */

/* An instruction that was left in the middle makes so many exits at most, before its vCPU is put
 * back. */
#define EXITS_MAX 16

/* In the order in which they are put back: later ones go by earlier ones, and KVM_SET_REGS drops
 * events. */
static const struct part {
	unsigned long get, put;
	size_t offset;
	const char *name;
	int capability; /* 0: all have it */
} parts[] = {
	/* KVM_GET_MP_STATE also takes in an INIT or SIPI that waits: none is left for the time
	   behind. */
	{ KVM_GET_MP_STATE, KVM_SET_MP_STATE, offsetof(struct vcpu_state, mp_state), "MP_STATE",
	  0 },
	{ KVM_GET_REGS, KVM_SET_REGS, offsetof(struct vcpu_state, registers), "REGS", 0 },
	{ KVM_GET_SREGS, KVM_SET_SREGS, offsetof(struct vcpu_state, special_registers), "SREGS",
	  0 },
	{ KVM_GET_XSAVE, KVM_SET_XSAVE, offsetof(struct vcpu_state, xsave), "XSAVE",
	  KVM_CAP_XSAVE },
	{ KVM_GET_XCRS, KVM_SET_XCRS, offsetof(struct vcpu_state, xcrs), "XCRS", KVM_CAP_XCRS },
	{ KVM_GET_DEBUGREGS, KVM_SET_DEBUGREGS, offsetof(struct vcpu_state, debug_registers),
	  "DEBUGREGS", KVM_CAP_DEBUGREGS },
	{ KVM_GET_LAPIC, KVM_SET_LAPIC, offsetof(struct vcpu_state, lapic), "LAPIC", 0 },
};

static int refused(const struct vcpu *vcpu, const char *what)
{
	int error = errno;

	return error_set(-error, "vCPU %u can not be reset: this host's KVM refused KVM_%s: %s",
			 vcpu->index, what, strerror(error));
}

static bool has_part(const struct vcpu *vcpu, const struct part *part)
{
	return !part->capability || vm_capability(vcpu->vm, part->capability);
}

static int fill_list(struct msr_list *list, int kvm_fd, struct kvm_msr_list *all)
{
	if (ioctl(kvm_fd, KVM_GET_MSR_INDEX_LIST, all))
		return error_set(-errno, "KVM_GET_MSR_INDEX_LIST failed: %s", strerror(errno));
	memcpy(list->indices, all->indices, all->nmsrs * sizeof(all->indices[0]));
	list->count = all->nmsrs;
	return 0;
}

int msr_list_read(struct msr_list *list, int kvm_fd)
{
	struct kvm_msr_list count = { .nmsrs = 0 }, *all;
	int error;

	*list = (struct msr_list){ 0 };
	/* E2BIG says how many there are. */
	if (!ioctl(kvm_fd, KVM_GET_MSR_INDEX_LIST, &count) || errno != E2BIG)
		return error_set(-EIO,
				 "this host's KVM does not tell its MSRs (KVM_GET_MSR_INDEX_LIST)");
	all = calloc(1, sizeof(*all) + count.nmsrs * sizeof(all->indices[0]));
	list->indices = calloc(count.nmsrs, sizeof(list->indices[0]));
	if (all && list->indices) {
		all->nmsrs = count.nmsrs;
		error = fill_list(list, kvm_fd, all);
	} else {
		error = error_set(-ENOMEM, "no memory for a list of MSRs");
	}
	free(all);
	return error;
}

void msr_list_free(struct msr_list *list)
{
	free(list->indices);
	*list = (struct msr_list){ 0 };
}

/* Not all that KVM lists can be read of each vCPU: its CPUID may not have them. */
static int take_msrs(struct vcpu_state *state, const struct vcpu *vcpu, const struct msr_list *list)
{
	state->msrs = calloc(list->count + 1, sizeof(state->msrs[0]));
	if (!state->msrs)
		return error_set(-ENOMEM, "no memory for the MSRs of vCPU %u", vcpu->index);
	for (size_t i = 0; i < list->count; i++) {
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

int vcpu_state_take(struct vcpu_state *state, struct vcpu *vcpu, const struct msr_list *list)
{
	assert(!atomic_load(&vcpu->thread_id));
	*state = (struct vcpu_state){ .nested.size = sizeof(state->nested) };
	if (vcpu->vm->nested && ioctl(vcpu->fd, KVM_GET_NESTED_STATE, &state->nested))
		return refused(vcpu, "GET_NESTED_STATE");
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (has_part(vcpu, &parts[i]) &&
		    ioctl(vcpu->fd, parts[i].get, (uint8_t *)state + parts[i].offset))
			return refused(vcpu, parts[i].name);
	if (ioctl(vcpu->fd, KVM_GET_VCPU_EVENTS, &state->events))
		return refused(vcpu, "GET_VCPU_EVENTS");
	return take_msrs(state, vcpu, list);
}

/* The access that the guest was left for is completed: nothing of it may come behind the reset. */
static void finish_instruction(struct vcpu *vcpu)
{
	for (int i = 0; i < EXITS_MAX; i++) {
		vcpu->run->immediate_exit = 1;
		if (ioctl(vcpu->fd, KVM_RUN, 0))
			break;
	}
	vcpu->run->immediate_exit = 0;
}

static int put_parts(const struct vcpu_state *state, struct vcpu *vcpu)
{
	struct kvm_mp_state before;

	/* Registers are the guest's own only when it has left its guest. */
	if (vcpu->vm->nested && ioctl(vcpu->fd, KVM_SET_NESTED_STATE, &state->nested))
		return refused(vcpu, "SET_NESTED_STATE");
	ioctl(vcpu->fd, KVM_GET_MP_STATE, &before);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (has_part(vcpu, &parts[i]) &&
		    ioctl(vcpu->fd, parts[i].put, (const uint8_t *)state + parts[i].offset))
			return refused(vcpu, parts[i].name);
	vcpu->run->s.regs.regs = state->registers;
	vcpu->run->s.regs.sregs = state->special_registers;
	return 0;
}

/* Only what differs: many can be read, but not written. */
static void put_msrs(const struct vcpu_state *state, const struct vcpu *vcpu)
{
	for (size_t i = 0; i < state->msr_count; i++) {
		const struct kvm_msr_entry *msr = &state->msrs[i];
		uint64_t value;

		if (!msr_get(vcpu->fd, msr->index, &value) && value != msr->data &&
		    msr_set(vcpu->fd, msr->index, msr->data))
			log_debug("vCPU %u: MSR %#x stays %#llx over the reset", vcpu->index,
				  msr->index, (unsigned long long)value);
	}
}

int vcpu_state_put(const struct vcpu_state *state, struct vcpu *vcpu)
{
	int error;

	assert(!atomic_load(&vcpu->thread_id));
	finish_instruction(vcpu);
	error = put_parts(state, vcpu);
	if (error)
		return error;
	put_msrs(state, vcpu);
	if (ioctl(vcpu->fd, KVM_SET_VCPU_EVENTS, &state->events))
		return refused(vcpu, "SET_VCPU_EVENTS");
	vcpu->sample_due = 0;
	vcpu->end_asked = false;
	atomic_store(&vcpu->stop, false);
	return 0;
}

void vcpu_state_free(struct vcpu_state *state)
{
	free(state->msrs);
}
