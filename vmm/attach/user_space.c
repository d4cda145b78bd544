/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/user_space.h"

#include <assert.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "vmm/guest/linux/deferred_lookup.h"
#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/call_site.h"

#define PAGE 4096ull
/* ns for which a task with the same css_set and struct cgroup is assumed to stay in its cgroup. */
#define SAME_SET NS_PER_S

/* The pointer is that to the end (before 5.12), or to the last word (kernel: map_irq_stack()). */
static uint64_t find_irq_top(const struct guest_kernel *kernel, const struct guest_view *view,
			     uint64_t offset)
{
	struct kernel_memory memory = { .view = view, .paging = &kernel->paging };
	uint64_t pointer;

	if (!kernel->tasks.irq_stack ||
	    !kernel_memory_read_u64(&memory, offset + kernel->tasks.irq_stack, &pointer))
		return 0;
	return (pointer + 8) & ~(PAGE - 1);
}

void user_space_find_cpu(struct user_space_cpu *cpu, const struct guest_kernel *kernel,
			 const struct guest_view *view, unsigned int id)
{
	cpu->known =
		guest_task_apic_offset(&kernel->tasks, view, &kernel->paging, id, &cpu->offset);
	cpu->irq_top = cpu->known ? find_irq_top(kernel, view, cpu->offset) : 0;
}

/* The index of the page with ADDRESS; page_count: none. */
static size_t find_page(const struct attach_guest_state *stack, uint64_t address)
{
	size_t i = 0;

	while (i < stack->page_count && address - stack->pages[i].gva >= PAGE)
		i++;
	return i;
}

/* A bit for each page that has not moved since the sample. */
static uint64_t unmoved_pages(const struct guest_view *view, const struct attach_guest_state *stack)
{
	struct guest_translation now;
	uint64_t there = 0;

	assert(stack->page_count <= ATTACH_PAGES_MAX);
	for (size_t i = 0; i < stack->page_count; i++)
		if (!guest_translate(view, &stack->registers.paging, stack->pages[i].gva, &now) &&
		    now.gpa / PAGE == stack->pages[i].gpa / PAGE)
			there |= 1ull << i;
	return there;
}

/* The number of leading addresses whose pages have not moved. */
static uint16_t count_unmoved(const struct guest_view *view, const struct attach_guest_state *stack,
			      const uint64_t *addresses, uint16_t count)
{
	uint64_t there = unmoved_pages(view, stack);
	uint16_t i = 0;
	size_t page;

	while (i < count && (page = find_page(stack, addresses[i])) < stack->page_count &&
	       there >> page & 1)
		i++;
	return i;
}

/* The sampled address itself stays in any case. */
static void cut(struct guest_callchain *chain, uint16_t depth)
{
	if (!depth && !chain->kernel_depth)
		depth = 1;
	if (depth >= chain->user_depth)
		return;
	chain->user_depth = depth;
	chain->flags |= SAMPLE_USER_TRUNCATED;
}

/* A called function may have jumped to JIT code. 32-bit code has other kinds of PLTs. */
static bool may_be_jumped_to(const struct attach_guest_state *stack, uint64_t called,
			     const struct user_map *map)
{
	const struct user_mapping *mapping = map ? user_map_find_cached(map, called) : NULL;

	return !stack->registers.long_mode ||
	       (mapping && mapping->image && user_image_kind(mapping->image) != USER_IMAGE_FILE);
}

/* True if the code at CALLED returns to ADDRESS. */
static bool is_caller(const struct guest_view *view, const struct attach_guest_state *stack,
		      uint64_t address, uint64_t called, const struct user_map *map)
{
	switch (user_call_classify(view, &stack->registers.paging, address, called)) {
	case USER_CALL_NONE:
		return false;
	case USER_CALL_ELSEWHERE:
		return may_be_jumped_to(stack, called, map);
	default:
		return true;
	}
}

/* The number of leading addresses that are each the caller of the previous one. MAP: their
 * mappings, as far as known. */
static uint16_t count_callers(const struct guest_view *view, const struct attach_guest_state *stack,
			      const uint64_t *addresses, uint16_t count, const struct user_map *map)
{
	uint16_t i = 1;

	while (i < count && is_caller(view, stack, addresses[i], addresses[i - 1], map))
		i++;
	return i < count ? i : count;
}

/* False if the guest has given TASK's mm_struct to another process since the sample. */
static bool has_its_memory(const struct guest_kernel *kernel, const struct guest_view *view,
			   const struct guest_task *task)
{
	struct kernel_memory memory = { .view = view, .paging = &kernel->paging };
	uint64_t now;

	return kernel_memory_read_u64(&memory, task->mm + kernel->tasks.page_table, &now) &&
	       now == task->page_table;
}

/* The number of CHAIN's leading addresses whose pages have not moved, in the task's memory as
 * seen by VIEW. */
static uint16_t count_mapped(const struct guest_kernel *kernel, const struct guest_view *view,
			     const struct attach_guest_state *stack, const struct guest_task *task,
			     const struct guest_callchain *chain, uint16_t count)
{
	return has_its_memory(kernel, view, task)
		       ? count_unmoved(view, stack, chain->addresses + chain->kernel_depth, count)
		       : 0;
}

/* A mapping that was found between two comparisons without a change existed at the sample. */
static void find_mappings(struct user_space *space, const struct guest_view *view,
			  const struct guest_view *batch, const struct attach_guest_state *stack,
			  const struct sample *sample, const struct guest_task *task,
			  struct guest_callchain *chain)
{
	const struct guest_view *before =
		batch_mappings_before(&space->mappings, view, sample->time);
	const struct guest_kernel *kernel = space->map.kernel;
	uint16_t depth = count_mapped(kernel, before, stack, task, chain, chain->user_depth);

	for (uint16_t i = 0; i < depth; i++)
		batch_mappings_find(&space->mappings, &space->map, task,
				    chain->addresses[chain->kernel_depth + i]);
	depth = count_callers(batch, stack, chain->addresses + chain->kernel_depth, depth,
			      &space->map);
	if (depth &&
	    count_mapped(kernel, batch_mappings_after(&space->mappings, view, &space->batch), stack,
			 task, chain, depth) < depth) {
		space->map.count = 0;
		depth = 0;
	}
	cut(chain, depth);
}

/* If the page tables of the task were assumed, user code that they do not map is not of that
 * task. */
static bool may_be_of_task(const struct attach_guest_state *stack)
{
	return !stack->cr3_of_task || !stack->registers.cpl ||
	       find_page(stack, stack->registers.rip) < stack->page_count;
}

static void cut_wrong_callers(const struct guest_view *batch,
			      const struct attach_guest_state *stack, struct guest_callchain *chain)
{
	cut(chain, count_callers(batch, stack, chain->addresses + chain->kernel_depth,
				 chain->user_depth, NULL));
}

void user_space_truncate(struct user_space *space, const struct guest_view *view,
			 const struct attach_guest_state *stack, const struct sample *sample,
			 struct guest_callchain *chain)
{
	if (!stack || !chain->user_depth)
		return;
	if (stack->cr3_of_task)
		cut(chain, 0);
	else
		cut_wrong_callers(batch_view_for(&space->batch, view, sample->time), stack, chain);
}

static bool is_known(const struct user_space_task *known, const struct guest_task *task,
		     uint64_t group, uint64_t time, uint32_t cgroups)
{
	return known->at == task->at && known->set == task->set && known->tid == task->tid &&
	       known->group == group && known->cgroup && known->cgroups == cgroups &&
	       time - known->time < SAME_SET;
}

static uint64_t lookup_cgroup(const struct guest_kernel *kernel, const struct guest_view *view,
			      const struct guest_task *task)
{
	struct guest_cgroup cgroup;

	if (!deferred_lookup_cgroup(kernel, view, task, &cgroup))
		return 0;
	guest_cgroups_enter(kernel->cgroups, &cgroup);
	return cgroup.id;
}

/* Cached, as a lookup takes about ten reads. */
static void attribute_cgroup(const struct guest_kernel *kernel, const struct guest_view *view,
			     const struct guest_task *task, struct sample *sample,
			     struct user_space_task *tasks)
{
	struct user_space_task *known = &tasks[(task->at >> 6) % USER_SPACE_TASKS];
	struct kernel_memory memory = { .view = view, .paging = &kernel->paging };
	uint64_t group;
	uint32_t cgroups;

	if (!kernel->cgroups || !task->set ||
	    !guest_cgroup_read_group(&memory, &kernel->tasks.cgroups, task->set, &group))
		return;
	cgroups = guest_cgroups_generation(kernel->cgroups);
	if (!is_known(known, task, group, sample->time, cgroups))
		*known = (struct user_space_task){ .at = task->at,
						   .set = task->set,
						   .group = group,
						   .time = sample->time,
						   .tid = task->tid,
						   .cgroups = cgroups,
						   .cgroup = lookup_cgroup(kernel, view, task) };
	sample->cgroup = known->cgroup;
	sample->cgroups = known->cgroup ? cgroups : 0;
}

/* Copied stacks */

static uint32_t images_of(const struct user_map *map)
{
	return user_images_generation(map->kernel->images);
}

/* The recorded page in MAPPING; NULL: none. */
static const struct attach_page *page_in(const struct attach_guest_state *stack,
					 const struct user_mapping *mapping)
{
	for (size_t i = 0; i < stack->page_count; i++)
		if (stack->pages[i].gva + PAGE > mapping->start &&
		    stack->pages[i].gva < mapping->end)
			return &stack->pages[i];
	return NULL;
}

/* True if the sample has the same page at the same address. */
static bool has_page(const struct attach_guest_state *stack, const struct attach_page *page)
{
	for (size_t i = 0; page->gva && i < stack->page_count; i++)
		if (stack->pages[i].gva == page->gva)
			return stack->pages[i].gpa == page->gpa;
	return false;
}

/* Adds the mappings that are known to exist in that state of the address space. */
static void add_known(struct user_space *space, const struct attach_guest_state *stack,
		      const struct guest_space_state *state, struct user_map *map)
{
	for (size_t i = 0; i < USER_SPACE_MAPPINGS && i < space->known_count; i++) {
		struct user_space_mapping *known = &space->known[i];

		if (known->number != state->number || known->images != images_of(map) ||
		    (known->changes != state->changes && !has_page(stack, &known->page)) ||
		    user_map_find_cached(map, known->mapping.start))
			continue;
		known->changes = state->changes;
		user_map_add(map, &known->mapping);
	}
}

/* Where MAPPING is or can be kept. */
static struct user_space_mapping *place_for(struct user_space *space,
					    const struct guest_space_state *state,
					    const struct user_mapping *mapping)
{
	for (size_t i = 0; i < USER_SPACE_MAPPINGS && i < space->known_count; i++) {
		struct user_space_mapping *known = &space->known[i];

		if (known->number == state->number && known->mapping.start == mapping->start &&
		    known->mapping.image == mapping->image)
			return known;
	}
	return &space->known[space->known_count++ % USER_SPACE_MAPPINGS];
}

static void keep_known(struct user_space *space, const struct guest_space_state *state,
		       const struct user_mapping *mapping, const struct attach_page *page)
{
	*place_for(space, state, mapping) =
		(struct user_space_mapping){ .number = state->number,
					     .changes = state->changes,
					     .images = images_of(&space->map),
					     .page = page ? *page : (struct attach_page){ 0 },
					     .mapping = *mapping };
}

/* Keeps those with a bit in KEPT. */
static void drop_mappings(struct user_map *map, uint64_t kept)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < map->count; i++)
		if (kept >> i & 1)
			map->mappings[count++] = map->mappings[i];
	map->count = count;
}

static bool read_state(const struct guest_kernel *kernel, const struct guest_view *view,
		       uint64_t mm, struct guest_space_state *now)
{
	struct kernel_memory memory = { .view = view, .paging = &kernel->paging };

	return kernel_memory_read_u64(&memory, mm + kernel->vmas.mm_space, &now->number) &&
	       kernel_memory_read_u64(&memory, mm + kernel->vmas.mm_changes, &now->changes);
}

/* Where PAGE is now. */
static bool find_now(const struct guest_view *view, const struct attach_guest_state *stack,
		     struct attach_page *page)
{
	struct guest_translation now;

	page->gva &= ~(PAGE - 1);
	if (guest_translate(view, &stack->registers.paging, page->gva, &now))
		return false;
	page->gpa = now.gpa & ~(PAGE - 1);
	return true;
}

/* True if MAPPING, found by now, existed at the sample. CHANGED: the address space has changed
 * since. */
static bool has_existed(struct user_space *space, const struct guest_view *view,
			const struct attach_guest_state *stack,
			const struct guest_space_state *then, bool changed,
			const struct user_mapping *mapping, uint64_t address)
{
	const struct attach_page *recorded = page_in(stack, mapping);
	struct attach_page page = { .gva = recorded ? recorded->gva : address };
	bool found = find_now(view, stack, &page);

	if (changed && (!recorded || !found || page.gpa != recorded->gpa))
		return false;
	keep_known(space, then, mapping, found ? &page : NULL);
	return true;
}

/* Ends the chain at the first address of a mapping that may not have existed at the sample; those
 * from FIRST on were found by now. False: the current mappings say nothing about the sample. */
static bool cut_unproven(struct user_space *space, const struct guest_view *view,
			 const struct attach_guest_state *stack, const struct guest_task *task,
			 unsigned int first, struct guest_callchain *chain)
{
	const struct guest_space_state *then = &task->space;
	struct user_map *map = &space->map;
	uint64_t proven = (1ull << first) - 1;
	struct guest_space_state now;
	bool changed;

	_Static_assert(USER_MAP_MAX < 64, "a bit for each mapping");
	if (!then->number || !read_state(map->kernel, view, task->mm, &now) ||
	    now.number != then->number)
		return false;
	changed = now.changes != then->changes;
	for (uint16_t i = 0; i < chain->user_depth; i++) {
		uint64_t address = chain->addresses[chain->kernel_depth + i];
		const struct user_mapping *mapping = user_map_find_cached(map, address);
		uint64_t bit = mapping ? 1ull << (mapping - map->mappings) : 0;

		if (proven & bit || (!mapping && !changed))
			continue;
		if (!mapping || !has_existed(space, view, stack, then, changed, mapping, address)) {
			cut(chain, i);
			break;
		}
		proven |= bit;
	}
	drop_mappings(map, proven);
	return true;
}

/* As the sampler of kicks does: what was read through page tables of another task is not of this
 * one. */
static void drop_foreign(const struct guest_kernel *kernel, const struct guest_task *task,
			 struct guest_callchain *chain)
{
	if (chain->user_depth && chain->kernel_depth &&
	    (task->foreign ||
	     guest_task_in_execve(&kernel->tasks, chain->addresses, chain->kernel_depth)))
		cut(chain, 0);
}

/* One page of each mapping of the chain shows in later samples that it exists. */
static bool note_pages(const struct user_map *map, const struct guest_callchain *chain,
		       struct user_stack *process)
{
	bool added = false;

	for (uint16_t i = 0; i < chain->user_depth; i++) {
		uint64_t address = chain->addresses[chain->kernel_depth + i];
		const struct user_mapping *mapping = user_map_find_cached(map, address);

		if (mapping)
			added |=
				user_stack_add_page(process, mapping->start, mapping->end, address);
	}
	return added;
}

static bool note_stack(struct user_space *space, const struct attach_guest_state *stack,
		       uint64_t mm, const struct guest_callchain *chain)
{
	const struct attach_stack *copy = &stack->stacks[ATTACH_STACK_USER];

	return copy->size && chain->user_stack_end > copy->gva &&
	       user_stacks_note(&space->stacks, mm, copy->size, chain->user_stack_end - copy->gva);
}

static void note_process(struct user_space *space, const struct attach_guest_state *stack,
			 const struct guest_task *task, const struct guest_callchain *chain)
{
	bool changed = note_stack(space, stack, task->mm, chain);
	struct user_stack *process = user_stacks_find(&space->stacks, task->mm);
	const struct guest_space_state *state = &task->space;

	changed |= note_pages(&space->map, chain, process);
	if (chain->user_depth &&
	    (process->number != state->number || process->changes != state->changes)) {
		process->number = state->number;
		process->changes = state->changes;
		changed = true;
	}
	if (changed)
		space->updated = process;
}

/* TASK NULL: unknown, and the map is empty. */
static void unwind(struct user_space *space, const struct guest_kernel *kernel,
		   const struct guest_view *view, const struct attach_guest_state *stack,
		   const struct sample *sample, const struct guest_task *task,
		   struct guest_callchain *chain)
{
	struct user_map *map = &space->map;
	struct stack_view copies;
	unsigned int first;

	stack_view_init(&copies, batch_view_for(&space->batch, view, sample->time), kernel, stack);
	if (!task || !map->mm) {
		guest_unwind(kernel->orc, &copies.view, &stack->registers, NULL, chain);
		if (task)
			drop_foreign(kernel, task, chain);
		return;
	}
	/* A recording may last for a few seconds only, and begins with unknown images. */
	chain->guess_early = true;
	add_known(space, stack, &task->space, map);
	first = map->count;
	guest_unwind(kernel->orc, &copies.view, &stack->registers, map, chain);
	drop_foreign(kernel, task, chain);
	for (uint16_t i = 0; i < chain->user_depth; i++)
		user_map_find(map, chain->addresses[chain->kernel_depth + i]);
	if (map->count > first && !cut_unproven(space, view, stack, task, first, chain)) {
		map->count = 0;
		cut(chain, 0);
	}
	note_process(space, stack, task, chain);
}

void user_space_unwind_unknown(const struct guest_view *view,
			       const struct attach_guest_state *stack, const struct sample *sample,
			       struct guest_callchain *chain, struct user_space *space)
{
	struct stack_view copies;

	stack_view_init(&copies, batch_view_for(&space->batch, view, sample->time), NULL, stack);
	chain->unknown_kernel = true;
	guest_unwind(NULL, &copies.view, &stack->registers, NULL, chain);
}

static void attribute_unknown(struct user_space *space, const struct guest_kernel *kernel,
			      const struct guest_view *view, const struct attach_guest_state *stack,
			      const struct sample *sample, struct guest_callchain *chain)
{
	if (stack && stack->copied)
		unwind(space, kernel, view, stack, sample, NULL, chain);
	else
		user_space_truncate(space, view, stack, sample, chain);
}

static void set_task(const struct guest_task *task, struct sample *sample)
{
	sample->pid = task->pid;
	sample->tid = task->tid;
	sample->started = task->started;
	sample->parent = task->parent;
	memcpy(sample->comm, task->comm, sizeof(sample->comm));
	memcpy(sample->process_comm, task->process_comm, sizeof(sample->process_comm));
}

void user_space_attribute(const struct user_space_cpu *cpu, const struct guest_kernel *kernel,
			  const struct guest_view *view, const struct attach_guest_state *stack,
			  struct sample *sample, struct guest_callchain *chain,
			  struct user_space *space)
{
	struct user_map *map = &space->map;
	const struct guest_view *batch;
	struct guest_task task;

	map->count = 0;
	space->updated = NULL;
	if (!cpu->known || !stack || !stack->tasks || !may_be_of_task(stack) ||
	    !guest_task_identify(&kernel->tasks, view, &kernel->paging, &stack->registers,
				 cpu->offset, stack->tasks, &task)) {
		attribute_unknown(space, kernel, view, stack, sample, chain);
		return;
	}
	set_task(&task, sample);
	attribute_cgroup(kernel, view, &task, sample, space->tasks);
	user_map_begin(map, kernel, view, task.mm);
	if (stack->copied) {
		unwind(space, kernel, view, stack, sample, &task, chain);
		return;
	}
	batch = batch_view_for(&space->batch, view, sample->time);
	if (map->mm && chain->user_depth)
		find_mappings(space, view, batch, stack, sample, &task, chain);
	else
		cut_wrong_callers(batch, stack, chain);
}
