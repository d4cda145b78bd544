// SPDX-License-Identifier: Apache-2.0
/* vCPUs that come and go, and the memory of the VM. */
#include "vmm/attach/attach_state.h"

#include <errno.h>

#include "shared/log.h"

static const struct vmm_vcpu *find(const struct vmm_vcpu *vcpus, size_t count,
				   const struct vmm_vcpu *wanted)
{
	for (size_t i = 0; i < count; i++)
		if (vcpus[i].id == wanted->id && vcpus[i].tid == wanted->tid)
			return &vcpus[i];
	return NULL;
}

static void remove_gone(struct attach *attach)
{
	const struct vmm_process *process = attach->process;

	for (size_t i = 0; i < attach->sampled_count;) {
		struct vmm_vcpu *vcpu = &attach->sampled[i];

		if (find(process->vcpus, process->vcpu_count, vcpu)) {
			i++;
			continue;
		}
		log_info("vCPU %u is gone", vcpu->id);
		attach->backend->remove(attach->source, vcpu->id);
		*vcpu = attach->sampled[--attach->sampled_count];
	}
}

/* Numbers of threads are used again: what was opened by one is of the VM if the thread is still
 * there behind it. */
static int add_vcpu(struct attach *attach, const struct vmm_vcpu *vcpu)
{
	int error = attach->backend->add(attach->source, vcpu);

	if (error || vmm_process_has_thread(attach->process, vcpu->tid))
		return error;
	attach->backend->remove(attach->source, vcpu->id);
	return -ESRCH;
}

/* Once: there are no rings for any of them. */
static void tell_beyond(struct attach *attach, unsigned int id)
{
	if (attach->told_beyond)
		return;
	log_warning(
		"vCPU %u came after the start and is not sampled, as those above: there was room for those "
		"below %zu. Attach again to sample all",
		id, attach->ring_count);
	attach->told_beyond = true;
}

/* Once, until all are sampled. It is tried again with each scan: what is in its way may go. */
static void tell_refused(struct attach *attach, unsigned int id)
{
	if (!attach->told_refused)
		log_warning("vCPU %u is not sampled: %s", id, error_message());
	attach->told_refused = true;
}

static int add_new(struct attach *attach)
{
	const struct vmm_process *process = attach->process;
	bool refused = false;

	attach->arriving = false;
	for (size_t i = 0; i < process->vcpu_count; i++) {
		const struct vmm_vcpu *vcpu = &process->vcpus[i];
		int error;

		if (vcpu->id >= attach->ring_count) {
			tell_beyond(attach, vcpu->id);
			continue;
		}
		if (!vcpu->tid || find(attach->sampled, attach->sampled_count, vcpu))
			continue;
		error = add_vcpu(attach, vcpu);
		if (error == -ESRCH) {
			attach->arriving = true;
			continue;
		}
		/* Who starts a vCPU of its own waits for it to be sampled, and ends the VM where it
		 * is not.
		 */
		if (error && attach->sampled_count && !attach->own) {
			tell_refused(attach, vcpu->id);
			refused = true;
			continue;
		}
		if (error)
			return error;
		log_debug("vCPU %u is thread %d, as %s tells", vcpu->id, vcpu->tid, vcpu->found);
		attach->cpus[vcpu->id].known = false;
		attach->sampled[attach->sampled_count++] = *vcpu;
	}
	attach->told_refused = refused;
	return 0;
}

/* Guest memory that was plugged in is another memslot. */
static void follow_memory(struct attach *attach)
{
	struct vmm_slot slots[VMM_SLOTS_MAX];
	int count;

	if (attach->layout_guessed || !attach->backend->slots)
		return;
	count = attach->backend->slots(attach->source, slots);
	if (count > 0)
		vmm_memory_set_slots(&attach->memory, slots, (size_t)count);
}

/* Names of threads may be anybody's; KVM knows. */
void attach_ask_backend(struct attach *attach)
{
	if (attach->backend->threads)
		attach->backend->threads(attach->source, attach->process);
}

int attach_follow_vcpus(struct attach *attach)
{
	int error = vmm_process_scan(attach->process);

	if (error)
		return error;
	attach_ask_backend(attach);
	follow_memory(attach);
	remove_gone(attach);
	error = add_new(attach);
	atomic_store(&attach->vcpus, (unsigned int)attach->sampled_count);
	return error;
}
