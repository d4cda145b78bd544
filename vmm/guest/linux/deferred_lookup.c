/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/deferred_lookup.h"

#include <string.h>

#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/linux/user_map.h"

static struct kernel_memory memory_of(const struct guest_kernel *kernel,
				      const struct guest_view *view)
{
	return (struct kernel_memory){ .view = view, .paging = &kernel->paging };
}

/* Reads the number of the address space MM and that of TLB flushes in it. */
static bool read_changes(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			 uint64_t mm, uint64_t *space, uint64_t *changes)
{
	return layout->has_changes &&
	       kernel_memory_read_u64(memory, mm + layout->mm_space, space) && *space &&
	       kernel_memory_read_u64(memory, mm + layout->mm_changes, changes);
}

bool deferred_lookup_note(const struct guest_kernel *kernel, const struct guest_view *view,
			  const struct guest_task *task, unsigned int parts,
			  struct sample_deferred *noted)
{
	struct kernel_memory memory = memory_of(kernel, view);

	*noted = (struct sample_deferred){ .parts = parts };
	if (parts & DEFERRED_LOOKUP_CGROUP && kernel->cgroups &&
	    guest_cgroup_read_set(&memory, &kernel->tasks.cgroups, task->at, &noted->set)) {
		noted->task = task->at;
		noted->cgroups = guest_cgroups_generation(kernel->cgroups);
	}
	if (parts & DEFERRED_LOOKUP_MAPPINGS && kernel->images && task->mm &&
	    read_changes(&memory, &kernel->vmas, task->mm, &noted->space, &noted->changes)) {
		noted->mm = task->mm;
		noted->images = user_images_generation(kernel->images);
	}
	return noted->task || noted->mm;
}

/* Checked after the reads: the memory of an ended task may be reused. */
static bool is_same_task(struct kernel_memory *memory, const struct guest_task_layout *layout,
			 const struct guest_task *task)
{
	uint32_t tid;

	return guest_cgroup_task_has_set(memory, &layout->cgroups, task->at, task->set) &&
	       kernel_memory_read(memory, task->at + layout->pid, &tid, sizeof(tid)) &&
	       tid == task->tid;
}

bool deferred_lookup_cgroup(const struct guest_kernel *kernel, const struct guest_view *view,
			    const struct guest_task *task, struct guest_cgroup *cgroup)
{
	struct kernel_memory memory = memory_of(kernel, view);

	return guest_cgroup_read(&memory, &kernel->tasks.cgroups, task->at, cgroup) &&
	       is_same_task(&memory, &kernel->tasks, task);
}

static bool find_cgroup(const struct guest_kernel *kernel, const struct guest_view *view,
			const struct sample_deferred *noted, struct sample *to)
{
	const struct guest_task task = { .at = noted->task, .set = noted->set, .tid = to->tid };
	struct guest_cgroup cgroup;

	if (!noted->task || !kernel->cgroups ||
	    noted->cgroups != guest_cgroups_generation(kernel->cgroups) ||
	    !deferred_lookup_cgroup(kernel, view, &task, &cgroup))
		return false;
	guest_cgroups_enter(kernel->cgroups, &cgroup);
	to->cgroup = cgroup.id;
	to->cgroups = noted->cgroups;
	return true;
}

static bool is_unchanged(const struct guest_kernel *kernel, const struct guest_view *view,
			 const struct sample_deferred *noted)
{
	struct kernel_memory memory = memory_of(kernel, view);
	uint64_t space, changes;

	return read_changes(&memory, &kernel->vmas, noted->mm, &space, &changes) &&
	       space == noted->space && changes == noted->changes;
}

static bool is_mapped(const struct sample_mapping *mappings, unsigned int count, uint64_t address)
{
	for (unsigned int i = 0; i < count; i++)
		if (address - mappings[i].start < mappings[i].end - mappings[i].start)
			return true;
	return false;
}

/* A mapping in the sample may have grown since: the sample keeps its own. */
static bool overlaps(const struct sample_mapping *mappings, unsigned int count,
		     const struct sample_mapping *added)
{
	for (unsigned int i = 0; i < count; i++)
		if (added->start < mappings[i].end && mappings[i].start < added->end)
			return true;
	return false;
}

/* Adds the mappings that do not overlap one in TO. */
static void add_mappings(const struct user_map *map, struct sample *to)
{
	struct sample_mapping found[USER_MAP_MAX], *mappings = sample_write_mappings(to);
	unsigned int count = user_map_to_sample(map, found);

	for (unsigned int i = 0; i < count && to->mappings < SAMPLE_MAPPINGS_MAX; i++)
		if (!overlaps(mappings, to->mappings, &found[i]))
			mappings[to->mappings++] = found[i];
}

static bool find_mappings(const struct guest_kernel *kernel, const struct guest_view *view,
			  const struct sample_deferred *noted, struct sample *to)
{
	const uint64_t *callers = to->callchain + to->kernel_depth;
	struct user_map map;

	if (!noted->mm || !kernel->images ||
	    noted->images != user_images_generation(kernel->images))
		return false;
	user_map_begin(&map, kernel, view, noted->mm);
	for (uint16_t i = 0; i < to->user_depth; i++)
		if (!is_mapped(sample_mappings(to), to->mappings, callers[i]))
			user_map_find(&map, callers[i]);
	/* Checked after the reads: if nothing has changed since the stop, they are valid for it. */
	if (!is_unchanged(kernel, view, noted))
		return false;
	add_mappings(&map, to);
	return true;
}

void deferred_lookup(const struct guest_kernel *kernel, const struct guest_view *view,
		     const struct sample *from, struct sample *to)
{
	const struct sample_deferred *noted = sample_deferred(from);
	const struct sample_hit *hit = sample_hit(from);
	unsigned int left = noted->parts;

	memcpy(to, from,
	       sample_size((size_t)from->kernel_depth + from->user_depth) +
		       from->mappings * sizeof(struct sample_mapping));
	to->deferred = to->host_kernel = to->host_user = 0;
	if (kernel && left & DEFERRED_LOOKUP_CGROUP && find_cgroup(kernel, view, noted, to))
		left &= ~(unsigned int)DEFERRED_LOOKUP_CGROUP;
	if (kernel && left & DEFERRED_LOOKUP_MAPPINGS && find_mappings(kernel, view, noted, to))
		left &= ~(unsigned int)DEFERRED_LOOKUP_MAPPINGS;
	if (!left)
		to->flags &= (uint8_t)~SAMPLE_LOOKUP_INCOMPLETE;
	if (hit)
		*sample_write_hit(to) = *hit;
	else if (sample_outside(from))
		*sample_write_outside(to) = *sample_outside(from);
}
