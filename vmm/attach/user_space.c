/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/user_space.h"

#include <assert.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "vmm/guest/linux/deferred_lookup.h"
#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/user_call.h"

#define PAGE 4096ull
/* So long a task that is seen with the same css_set of the same struct cgroup is taken to be in the
 * cgroup that it was found in. */
#define SAME_SET NS_PER_S

void user_space_find_cpu(struct user_space_cpu *cpu, const struct guest_kernel *kernel,
			 const struct guest_view *view, unsigned int id)
{
	cpu->known =
		guest_task_apic_offset(&kernel->tasks, view, &kernel->paging, id, &cpu->offset);
}

/* Which of its pages ADDRESS lies in; page_count: none of them. */
static size_t find_page(const struct attach_guest_state *stack, uint64_t address)
{
	size_t i = 0;

	while (i < stack->page_count && address - stack->pages[i].gva >= PAGE)
		i++;
	return i;
}

/* Those of its pages that lie where they lay at the sample, a bit for each. */
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

/* How many of the addresses, from the first on, are where they were. */
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

/* The sampled address itself stays, whatever is there. */
static void cut(struct guest_callchain *chain, uint16_t depth)
{
	if (!depth && !chain->kernel_depth)
		depth = 1;
	if (depth >= chain->user_depth)
		return;
	chain->user_depth = depth;
	chain->flags |= SAMPLE_USER_TRUNCATED;
}

/* What others call may have jumped to code that was made at run time. 32-bit code has PLTs of other
 * kinds. */
static bool may_be_jumped_to(const struct attach_guest_state *stack, uint64_t called,
			     const struct user_map *map)
{
	const struct user_mapping *mapping = map ? user_map_find_cached(map, called) : NULL;

	return !stack->registers.long_mode ||
	       (mapping && mapping->image && user_image_kind(mapping->image) != USER_IMAGE_FILE);
}

/* Is ADDRESS one that the code at CALLED returns to? */
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

/* How many of the addresses, from the first on, are callers each of the one before. MAP: what they
 * are in, as far as that is known. */
static uint16_t count_callers(const struct guest_view *view, const struct attach_guest_state *stack,
			      const uint64_t *addresses, uint16_t count, const struct user_map *map)
{
	uint16_t i = 1;

	while (i < count && is_caller(view, stack, addresses[i], addresses[i - 1], map))
		i++;
	return i < count ? i : count;
}

/* Is TASK's memory the one that it had at the sample? The guest may have given it to another
 * process. */
static bool has_its_memory(const struct guest_kernel *kernel, const struct guest_view *view,
			   const struct guest_task *task)
{
	struct kernel_memory memory = { .view = view, .paging = &kernel->paging };
	uint64_t now;

	return kernel_memory_read_u64(&memory, task->mm + kernel->tasks.page_table, &now) &&
	       now == task->page_table;
}

/* How many of CHAIN's addresses are where they were, in the memory that the task had, as VIEW has
 * it. */
static uint16_t count_mapped(const struct guest_kernel *kernel, const struct guest_view *view,
			     const struct attach_guest_state *stack, const struct guest_task *task,
			     const struct guest_callchain *chain, uint16_t count)
{
	return has_its_memory(kernel, view, task)
		       ? count_unmoved(view, stack, chain->addresses + chain->kernel_depth, count)
		       : 0;
}

/* What was found between two looks at the same memory and pages was there with them. */
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

/* User code that its task's page tables do not map is not of that task, if they were taken for
 * those in use.
 */
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

/* A look-up takes some ten reads. */
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

void user_space_attribute(const struct user_space_cpu *cpu, const struct guest_kernel *kernel,
			  const struct guest_view *view, const struct attach_guest_state *stack,
			  struct sample *sample, struct guest_callchain *chain,
			  struct user_space *space)
{
	struct user_map *map = &space->map;
	const struct guest_view *batch;
	struct guest_task task;

	map->count = 0;
	if (!cpu->known || !stack || !stack->tasks || !may_be_of_task(stack) ||
	    !guest_task_identify(&kernel->tasks, view, &kernel->paging, &stack->registers,
				 cpu->offset, stack->tasks, &task)) {
		user_space_truncate(space, view, stack, sample, chain);
		return;
	}
	sample->pid = task.pid;
	sample->tid = task.tid;
	memcpy(sample->comm, task.comm, sizeof(sample->comm));
	attribute_cgroup(kernel, view, &task, sample, space->tasks);
	user_map_begin(map, kernel, view, task.mm);
	batch = batch_view_for(&space->batch, view, sample->time);
	if (map->mm && chain->user_depth)
		find_mappings(space, view, batch, stack, sample, &task, chain);
	else
		cut_wrong_callers(batch, stack, chain);
}
