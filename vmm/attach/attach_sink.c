/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a sample. */
#include "shared/clock_ns.h"
#include "vmm/attach/attach_state.h"

#include <assert.h>
#include <string.h>

#include "vmm/attach/kernel_tables.h"
#include "vmm/attach/sample_views.h"
#include "vmm/guest/linux/kernel_identity.h"

/* ns: registers are of the same kernel if they are not further apart. */
#define RECENT (100 * NS_PER_MS)
/* ns after which the page tables that a sample had may be nobody's any more: kvm_intel seldom has a
 * later CR3. */
#define LATEST_LIFETIME NS_PER_S
/* How long a CR3 is taken to map the kernel that it mapped before. */
#define CHECK_INTERVAL (200 * NS_PER_MS)

/*
 * The kernel tells the level by itself, which in some KVMs is not always that of the
 * address: nobody but a kernel runs in the upper half, and Linux nowhere else
 * (Documentation/arch/x86/x86_64/mm.rst).
 */
static void correct_level(const struct attach *attach, struct sample *sample,
			  struct guest_callchain *chain)
{
	bool upper = sample->rip >> 63;

	if (sample->cpl && upper)
		sample->cpl = 0;
	else if (!sample->cpl && !upper && attach->kernel)
		sample->cpl = 3;
	else
		return;
	chain->kernel_depth = upper;
	chain->user_depth = !upper;
}

/* Under a CR3 that was seen to map the kernel a moment ago it is not asked for again: that takes
 * some ten reads. */
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

/* The copy of the stack is of the sample's time; it is walked as kvmscope run walks the stack of a
 * stopped vCPU. */
static void unwind(struct attach *attach, const struct attach_guest_state *stack,
		   struct guest_callchain *chain)
{
	struct stack_view view;

	stack_view_init(&view, &attach->memory.view, attach->kernel, stack);
	guest_unwind(attach->kernel->orc, &view.view, &stack->registers, NULL, chain);
	if (chain->flags & SAMPLE_KERNEL_TRUNCATED)
		attach->chains.cut++;
	else
		attach->chains.whole++;
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

/* By where the guest has KVM write the time. What was sampled before this kernel was found may be
 * another's.
 */
static bool kernel_owns_clock(struct attach *attach, const struct sample *sample,
			      const struct attach_guest_state *stack)
{
	const struct kernel_pulse *pulse = &attach->pulse;

	return !stack || !stack->clock_known || sample->time < attach->known_since ||
	       kernel_clock_update(&attach->clocks[sample->vcpu], stack->clock, sample->time,
				   pulse->beats ? pulse->time : 0);
}

/* Does the kernel that is known run, as far as this sample can tell? MODE is what the processor
 * had. */
static bool kernel_seems_running(struct attach *attach, const struct sample *sample,
				 const struct attach_guest_state *stack, uint8_t mode)
{
	bool was_stalled = attach->kernel_stalled;
	uint64_t ticks;

	/* 32-bit code may have any CR3. */
	if (has_cr3(stack))
		return guest_kernel_can_run(&stack->registers) &&
		       runs_kernel(attach, &stack->registers);
	if (guest_kernel_ticks(attach->kernel, &attach->memory.view, &ticks))
		attach->kernel_stalled = !kernel_pulse_update(&attach->pulse, sample->time, ticks,
							      !mode, sample->rip);
	attach->kernel_stalled |= !kernel_owns_clock(attach, sample, stack);
	if (attach->kernel_stalled != was_stalled)
		attach->image_rip = 0; /* that was the other kernel's */
	return !attach->kernel_stalled;
}

/* As behind a reset: firmware runs no kernel. MODE as for seems_to_run(). */
static bool is_firmware(const struct attach_guest_state *stack, uint8_t mode)
{
	return stack && !mode && !guest_kernel_can_run(&stack->registers);
}

/* Its low addresses are no user space, and nobody's. */
static void mark_firmware(struct sample *sample, struct guest_callchain *chain)
{
	chain->kernel_depth = chain->user_depth = 0;
	sample->cpl = 0;
}

/* Of a task that the kernel's memory alone tells that memory says the same when the kernel is gone.
 */
static bool may_attribute(const struct attach *attach, const struct sample *sample,
			  const struct attach_guest_state *stack)
{
	return !stack || has_cr3(stack) || kernel_pulse_is_recent(&attach->pulse, sample->time);
}

/* A backend that has not been told of this kernel yet saw the tasks of the one before, where that
 * had them.
 */
static void attribute_user_space(struct attach *attach, const struct guest_kernel *kernel,
				 struct sample *sample, struct guest_callchain *chain,
				 const struct attach_guest_state *stack)
{
	const struct user_space_cpu *cpu = &attach->cpus[sample->vcpu];

	if (attach->cpus_current && cpu->seen && may_attribute(attach, sample, stack))
		user_space_attribute(cpu, kernel, &attach->memory.view, stack, sample, chain,
				     &attach->space);
	else
		user_space_truncate(&attach->space, &attach->memory.view, stack, sample, chain);
}

/* With kernel_lock. What vouches for the addresses of the guest's kernel is a kernel that is known.
 */
static void apply_kernel(struct attach *attach, struct sample *sample,
			 struct guest_callchain *chain, const struct attach_guest_state *stack,
			 uint8_t mode)
{
	const struct guest_kernel *kernel = attach->kernel;
	bool runs = kernel_seems_running(attach, sample, stack, mode);

	attach->latest_rip = sample->rip;
	if (is_firmware(stack, mode)) {
		mark_firmware(sample, chain);
		return;
	}
	if (!runs) {
		mark_other_kernel(sample, chain);
		return;
	}
	if (stack && stack->bytes && !sample->cpl)
		unwind(attach, stack, chain);
	else if (attach_needs_callchains(attach) && !sample->cpl)
		count_missing_chain(chain, &attach->chains.without_stack);
	module_presence_check(guest_kernel_presence(kernel), &attach->memory.view, &kernel->paging,
			      sample->time, chain);
	attribute_user_space(attach, kernel, sample, chain, stack);
}

/*
 * With kernel_lock, while no kernel is known: the tasks of the one before are there still. Where
 * there was one, its names stand in the file, and this is not it.
 */
static void apply_no_kernel(struct attach *attach, struct sample *sample,
			    struct guest_callchain *chain, const struct attach_guest_state *stack)
{
	if (attach->lost_kernel) {
		mark_other_kernel(sample, chain);
		return;
	}
	user_space_truncate(&attach->space, &attach->memory.view, stack, sample, chain);
	if (attach_needs_callchains(attach) && !sample->cpl)
		count_missing_chain(chain, &attach->chains.without_kernel);
}

/* Those in the kernel serve best: under KPTI the tables of user space do not map all of it. */
static void keep_registers(struct attach *attach, const struct sample *sample,
			   const struct attach_guest_state *stack)
{
	/* They come in the order of a vCPU's time, those of one behind those of another. */
	int64_t later = (int64_t)(sample->time - attach->latest_time);

	if (attach->has_latest && !attach->latest.cpl &&
	    later < (sample->cpl ? (int64_t)RECENT : 0))
		return;
	attach->latest = stack->registers;
	if (!attach->has_latest || later > 0)
		attach->latest_time = sample->time;
	attach->has_latest = true;
}

/* Samples without a CR3 go on behind it. */
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

static void write_record(struct ring *ring, const struct sample *sample,
			 const struct guest_callchain *chain, const struct user_map *map)
{
	size_t depth = (size_t)chain->kernel_depth + chain->user_depth;
	struct sample *record =
		ring_reserve(ring, RECORD_SAMPLE,
			     sample_size(depth) + map->count * sizeof(struct sample_mapping));

	if (record) {
		*record = *sample;
		record->flags |= chain->flags;
		record->kernel_depth = chain->kernel_depth;
		record->user_depth = chain->user_depth;
		memcpy(record->callchain, chain->addresses, depth * sizeof(uint64_t));
		record->mappings = (uint16_t)user_map_to_sample(map, sample_write_mappings(record));
	}
	ring_commit(ring, record);
}

void attach_record_sample(void *context, struct sample *sample, struct guest_callchain *chain,
			  const struct attach_guest_state *stack)
{
	struct attach *attach = context;

	assert(sample->vcpu < attach->ring_count);
	attach->recorded++;
	sample->pid = sample->tid = SAMPLE_TASK_UNKNOWN;
	attach->space.map.count = 0;
	if (sample->flags & SAMPLE_HOST) {
		chain->kernel_depth = chain->user_depth = 0;
		atomic_fetch_add(&attach->host, 1);
	} else {
		if (sample->flags & SAMPLE_OTHER_KERNEL)
			mark_other_kernel(sample, chain);
		else
			record_guest(attach, sample, chain, stack);
		atomic_fetch_add(&attach->guest, 1);
	}
	write_record(attach->rings[sample->vcpu], sample, chain, &attach->space.map);
}

void attach_record_lost(void *context, unsigned int id, uint64_t count)
{
	struct attach *attach = context;
	struct sample_lost *lost;

	assert(id < attach->ring_count);
	attach->recorded++;
	atomic_fetch_add(&attach->lost, count);
	lost = ring_reserve(attach->rings[id], RECORD_LOST, sizeof(*lost));
	if (lost)
		*lost = (struct sample_lost){ .count = count };
	ring_commit(attach->rings[id], lost);
}
