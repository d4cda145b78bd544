/* SPDX-License-Identifier: Apache-2.0 */
/* The sink of the backends: checks, unwinds and attributes a sample, and writes it to its ring. */
#include "shared/clock_ns.h"
#include "vmm/attach/attach_state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "vmm/attach/kernel_tables.h"
#include "vmm/attach/sample_views.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/linux/module_presence.h"

/* ns: maximum distance of registers that are assumed to be of the same kernel. */
#define RECENT (100 * NS_PER_MS)
/* ns after which sampled page tables may have been freed: kvm_intel rarely supplies a later CR3. */
#define LATEST_LIFETIME NS_PER_S
/* ns for which a CR3 that maps the known kernel is not checked again. */
#define CHECK_INTERVAL (200 * NS_PER_MS)

/* Is RIP where Linux runs? A 32-bit kernel starts at PAGE_OFFSET. */
static bool is_upper(const struct attach *attach, uint64_t rip)
{
	if (attach->kernel && guest_paging_is_32bit(&attach->kernel->paging))
		return rip >= PAGE_OFFSET_32;
	return rip >> 63;
}

/* Some KVMs report a CPL that does not fit the address. Linux runs only in the upper half, and only
 * kernels run there (Documentation/arch/x86/x86_64/mm.rst). */
static void correct_level(const struct attach *attach, struct sample *sample,
			  struct guest_callchain *chain)
{
	bool upper = is_upper(attach, sample->rip);

	if (sample->cpl && upper)
		sample->cpl = 0;
	else if (!sample->cpl && !upper && attach->kernel)
		sample->cpl = 3;
	else
		return;
	chain->kernel_depth = upper;
	chain->user_depth = !upper;
}

/* Caches the result per CR3: a check takes about ten reads of guest memory. */
static bool runs_kernel(struct attach *attach, const struct guest_registers *registers)
{
	uint64_t cr3 = registers->paging.cr3, time = attach_now();
	struct checked *checked = &attach->checked[(cr3 >> 12) % CHECKED];

	if (checked->cr3 != cr3 || time - checked->time > CHECK_INTERVAL)
		*checked = (struct checked){
			.cr3 = cr3,
			.time = time,
			.runs = guest_kernel_is_running(attach->kernel, &attach->memory.view,
							registers),
		};
	return checked->runs;
}

bool attach_needs_callchains(const struct attach *attach)
{
	return attach->target.callchains && attach->backend->has_callchains;
}

static void count_missing_chain(struct guest_callchain *chain, uint64_t *cause)
{
	chain->flags |= SAMPLE_KERNEL_TRUNCATED;
	++*cause;
}

static void mark_other_kernel(struct sample *sample, struct guest_callchain *chain)
{
	chain->kernel_depth = chain->user_depth = 0;
	sample->flags |= SAMPLE_OTHER_KERNEL;
}

static bool has_cr3(const struct attach_guest_state *stack)
{
	return stack && !stack->cr3_of_task;
}

/*
 * Checks the kvmclock address. Samples from before this kernel was found may belong to another one.
 */
static bool kernel_owns_clock(struct attach *attach, const struct sample *sample,
			      const struct attach_guest_state *stack)
{
	const struct kernel_pulse *pulse = &attach->pulse;

	return !stack || !stack->clock_known || sample->time < attach->known_since ||
	       kernel_clock_update(&attach->clocks[sample->vcpu], stack->clock, sample->time,
				   pulse->beats ? pulse->time : 0);
}

/* True if this sample is consistent with the known kernel still running. MODE is the CPL as
 * sampled. */
static bool kernel_seems_running(struct attach *attach, const struct sample *sample,
				 const struct attach_guest_state *stack, uint8_t mode)
{
	bool was_stalled = attach->kernel_stalled;
	uint64_t ticks;

	/* 32-bit code may use any CR3. */
	if (has_cr3(stack))
		return guest_kernel_can_run(&stack->registers) &&
		       runs_kernel(attach, &stack->registers);
	if (guest_kernel_ticks(attach->kernel, &attach->memory.view, &ticks))
		attach->kernel_stalled = !kernel_pulse_update(&attach->pulse, sample->time, ticks,
							      !mode, sample->rip);
	attach->kernel_stalled |= !kernel_owns_clock(attach, sample, stack);
	if (attach->kernel_stalled != was_stalled)
		attach->image_rip = 0; /* it was of the other kernel */
	return !attach->kernel_stalled;
}

/* After a reset: firmware runs, no kernel. MODE as for kernel_seems_running(). */
static bool is_firmware(const struct attach_guest_state *stack, uint8_t mode)
{
	return stack && !mode && !guest_kernel_can_run(&stack->registers);
}

/* If only the kernel's memory identifies the task, that memory is unchanged after the kernel is
 * gone. */
static bool may_attribute(const struct attach *attach, const struct sample *sample,
			  const struct attach_guest_state *stack)
{
	return !stack || has_cr3(stack) || kernel_pulse_is_recent(&attach->pulse, sample->time);
}

/* Until the backend has the task layout of this kernel, it reads tasks where the previous one had
 * them. */
static void attribute_user_space(struct attach *attach, const struct guest_kernel *kernel,
				 struct sample *sample, struct guest_callchain *chain,
				 const struct attach_guest_state *stack)
{
	static const struct user_space_cpu unknown;
	const struct user_space_cpu *cpu = &attach->cpus[sample->vcpu];
	struct user_space *space = &attach->space;

	if (!attach->cpus_current || !cpu->seen || !may_attribute(attach, sample, stack))
		cpu = &unknown;
	user_space_attribute(cpu, kernel, &attach->memory.view, stack, sample, chain, space);
	if (space->updated && attach->backend->set_process)
		attach->backend->set_process(attach->source, space->updated);
}

static void count_chain(struct attach *attach, const struct attach_guest_state *stack,
			struct guest_callchain *chain)
{
	if (!stack || !stack->copied)
		count_missing_chain(chain, &attach->chains.without_stack);
	else if (chain->flags & SAMPLE_KERNEL_TRUNCATED)
		attach->chains.cut++;
	else
		attach->chains.whole++;
}

/* With kernel_lock. */
static void apply_kernel(struct attach *attach, struct sample *sample,
			 struct guest_callchain *chain, const struct attach_guest_state *stack,
			 uint8_t mode)
{
	const struct guest_kernel *kernel = attach->kernel;
	bool runs = kernel_seems_running(attach, sample, stack, mode);

	attach->latest_rip = sample->rip;
	if (is_firmware(stack, mode)) {
		/* Low addresses of firmware are not user space. */
		chain->kernel_depth = chain->user_depth = 0;
		sample->cpl = 0;
		return;
	}
	if (!runs) {
		mark_other_kernel(sample, chain);
		return;
	}
	attribute_user_space(attach, kernel, sample, chain, stack);
	if (attach_needs_callchains(attach) && !sample->cpl)
		count_chain(attach, stack, chain);
	module_presence_check(guest_kernel_presence(kernel), &attach->memory.view, &kernel->paging,
			      sample->time, chain);
}

/* With kernel_lock, while no kernel is known: memory still has the tasks of the previous one. If
 * there was one, the file has its symbols, which do not apply to this sample. */
static void apply_no_kernel(struct attach *attach, struct sample *sample,
			    struct guest_callchain *chain, const struct attach_guest_state *stack)
{
	if (attach->lost_kernel) {
		mark_other_kernel(sample, chain);
		return;
	}
	user_space_truncate(&attach->space, &attach->memory.view, stack, sample, chain);
	if (!attach_needs_callchains(attach) || sample->cpl)
		return;
	if (stack && stack->copied)
		user_space_unwind_unknown(&attach->memory.view, stack, sample, chain,
					  &attach->space);
	count_missing_chain(chain, &attach->chains.without_kernel);
}

/* Prefers registers of kernel mode: under KPTI, user page tables map only a part of the kernel. */
static void keep_registers(struct attach *attach, const struct sample *sample,
			   const struct attach_guest_state *stack)
{
	/* Samples are in order of time for each vCPU, but not across vCPUs. */
	int64_t later = (int64_t)(sample->time - attach->latest_time);

	if (attach->has_latest && !attach->latest.cpl &&
	    later < (sample->cpl ? (int64_t)RECENT : 0))
		return;
	attach->latest = stack->registers;
	if (!attach->has_latest || later > 0)
		attach->latest_time = sample->time;
	attach->has_latest = true;
}

/* Samples without a CR3 may follow. */
static void expire_registers(struct attach *attach, const struct sample *sample)
{
	if (attach->has_latest &&
	    (int64_t)(sample->time - attach->latest_time) > (int64_t)LATEST_LIFETIME)
		attach->has_latest = false;
}

static void record_guest(struct attach *attach, struct sample *sample,
			 struct guest_callchain *chain, const struct attach_guest_state *stack)
{
	uint8_t mode = sample->cpl;

	pthread_mutex_lock(&attach->kernel_lock);
	correct_level(attach, sample, chain);
	if (has_cr3(stack))
		keep_registers(attach, sample, stack);
	else
		expire_registers(attach, sample);
	if (sample->rip >= LINUX_IMAGES_GVA)
		attach->image_rip = sample->rip;
	if (attach->kernel)
		apply_kernel(attach, sample, chain, stack, mode);
	else
		apply_no_kernel(attach, sample, chain, stack);
	pthread_mutex_unlock(&attach->kernel_lock);
}

/* Adds what RECORD has of the time outside of the guest. */
static void add_outside(struct sample *record, const struct attach_guest_state *state)
{
	if (state->outside) {
		struct sample_outside *why = sample_write_outside(record);

		record->flags |= SAMPLE_OUTSIDE;
		*why = (struct sample_outside){ 0 };
		snprintf(why->reason, sizeof(why->reason), "%s", state->outside);
	}
	record->host_kernel = state->host_kernel;
	record->host_user = state->host_user;
	if (state->host)
		memcpy(sample_write_host_chain(record), state->host,
		       sample_host_depth(record) * sizeof(uint64_t));
}

static size_t outside_size(const struct attach_guest_state *state)
{
	return (state->outside ? sizeof(struct sample_outside) : 0) +
	       ((size_t)state->host_kernel + state->host_user) * sizeof(uint64_t);
}

/* STATE may be NULL. */
static void write_record(struct ring *ring, const struct sample *sample,
			 const struct guest_callchain *chain, const struct user_map *map,
			 const struct attach_guest_state *state)
{
	size_t depth = (size_t)chain->kernel_depth + chain->user_depth;
	struct sample *record =
		ring_reserve(ring, RECORD_SAMPLE,
			     sample_size(depth) + map->count * sizeof(struct sample_mapping) +
				     (state ? outside_size(state) : 0));

	if (record) {
		*record = *sample;
		record->flags |= chain->flags;
		record->kernel_depth = chain->kernel_depth;
		record->user_depth = chain->user_depth;
		memcpy(record->callchain, chain->addresses, depth * sizeof(uint64_t));
		record->mappings = (uint8_t)user_map_to_sample(map, sample_write_mappings(record));
	}
	if (record && state)
		add_outside(record, state);
	ring_commit(ring, record);
}

/* KVM has an address of before the guest's start, or none. */
static void hide_registers(struct sample *sample, struct guest_callchain *chain)
{
	sample->rip = 0;
	sample->cpl = 0;
	chain->kernel_depth = chain->user_depth = 0;
}

void attach_record_sample(void *context, struct sample *sample, struct guest_callchain *chain,
			  const struct attach_guest_state *stack)
{
	struct attach *attach = context;
	bool host = sample->flags & SAMPLE_HOST || (stack && stack->host);

	THREAD_CHECK(&attach->owner);
	assert(sample->vcpu < attach->ring_count);
	attach->recorded++;
	sample->pid = sample->tid = SAMPLE_TASK_UNKNOWN;
	attach->space.map.count = 0;
	if (sample->flags & SAMPLE_HOST) {
		chain->kernel_depth = chain->user_depth = 0;
	} else {
		if (attach->encryption > GUEST_SEV)
			hide_registers(sample, chain);
		else if (sample->flags & SAMPLE_OTHER_KERNEL)
			mark_other_kernel(sample, chain);
		else
			record_guest(attach, sample, chain, stack);
		attach->unsampled.sampled += host || sample->event ? 0 : sample->period;
	}
	atomic_fetch_add(host            ? &attach->host
			 : sample->event ? &attach->outside
					 : &attach->guest,
			 1);
	write_record(attach->rings[sample->vcpu], sample, chain, &attach->space.map, stack);
}

void attach_record_lost(void *context, unsigned int id, uint64_t count)
{
	struct attach *attach = context;
	struct sample_lost *lost;

	THREAD_CHECK(&attach->owner);
	assert(id < attach->ring_count);
	attach->recorded++;
	atomic_fetch_add(&attach->lost, count);
	if (attach->target.frequency)
		attach->unsampled.sampled += count * NS_PER_S / attach->target.frequency;
	lost = ring_reserve(attach->rings[id], RECORD_LOST, sizeof(*lost));
	if (lost)
		*lost = (struct sample_lost){ .count = count };
	ring_commit(attach->rings[id], lost);
}
