/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/guest_cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/linux/guest_file.h"
#include "vmm/guest/page_walk.h"

#define PROBES    32
#define DEPTH_MAX 256 /* of the hierarchy */

/* The thread that changed the state of an entry to STATE_ENTERING writes it. */
enum state { STATE_FREE, STATE_ENTERING, STATE_ENTERED };

struct entry {
	_Atomic uint32_t state; /* enum state */
	struct guest_cgroup cgroup;
	_Atomic(char *) path; /* owned */
};

struct guest_cgroups {
	_Atomic uint32_t owners;
	uint32_t generation;
	_Atomic uint32_t count; /* of cgroups that are entered, or being entered */
	uint32_t loaded;        /* the first of them */
	/* In order; NULL: being entered. */
	_Atomic(struct entry *) entered[GUEST_CGROUPS_MAX];
	struct entry entries[GUEST_CGROUPS_MAX];
};

int guest_cgroup_layout_read(struct guest_cgroup_layout *layout, const struct btf *btf)
{
	*layout = (struct guest_cgroup_layout){ 0 };
	if (!btf_find_offset(btf, "task_struct", "usage", 4, &layout->task_users) ||
	    !btf_find_offset(btf, "task_struct", "cgroups", 8, &layout->task_set) ||
	    !btf_find_offset(btf, "css_set", "dfl_cgrp", 8, &layout->set_cgroup) ||
	    !btf_find_offset(btf, "cgroup", "kn", 8, &layout->cgroup_node) ||
	    !btf_find_offset(btf, "kernfs_node", "count", 4, &layout->node_count) ||
	    !btf_find_offset(btf, "kernfs_node", "id", 8, &layout->node_id) ||
	    !btf_find_offset(btf, "kernfs_node", "name", 8, &layout->node_name) ||
	    /* Renamed in 6.15, when it became RCU-protected. */
	    (!btf_find_offset(btf, "kernfs_node", "__parent", 8, &layout->node_parent) &&
	     !btf_find_offset(btf, "kernfs_node", "parent", 8, &layout->node_parent)))
		return -ENOENT;
	layout->known = true;
	return 0;
}

bool guest_cgroup_read_set(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
			   uint64_t task, uint64_t *set)
{
	return layout->known && task &&
	       kernel_memory_read_u64(memory, task + layout->task_set, set) && *set;
}

/* The last reference to a task holds its css_set (kernel: __put_task_struct()). */
bool guest_cgroup_task_has_set(struct kernel_memory *memory,
			       const struct guest_cgroup_layout *layout, uint64_t task,
			       uint64_t set)
{
	uint64_t held;
	int32_t users;

	return guest_cgroup_read_set(memory, layout, task, &held) && held == set &&
	       kernel_memory_read(memory, task + layout->task_users, &users, sizeof(users)) &&
	       users > 0;
}

bool guest_cgroup_read_group(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
			     uint64_t set, uint64_t *group)
{
	return kernel_memory_read_u64(memory, set + layout->set_cgroup, group);
}

/* Checked again: the task may be moved meanwhile. */
bool guest_cgroup_read(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
		       uint64_t task, struct guest_cgroup *cgroup)
{
	uint64_t set, again, group;

	if (layout->known && kernel_memory_read_u64(memory, task + layout->task_set, &set) &&
	    guest_cgroup_read_group(memory, layout, set, &group) &&
	    kernel_memory_read_u64(memory, group + layout->cgroup_node, &cgroup->node) &&
	    kernel_memory_read_u64(memory, cgroup->node + layout->node_id, &cgroup->id) &&
	    kernel_memory_read_u64(memory, task + layout->task_set, &again) && again == set)
		return cgroup->id;
	*cgroup = (struct guest_cgroup){ 0 };
	return false;
}

int guest_cgroups_create(struct guest_cgroups **result)
{
	static _Atomic uint32_t generations;
	struct guest_cgroups *cgroups = calloc(1, sizeof(*cgroups));

	if (!cgroups)
		return -ENOMEM;
	cgroups->owners = 1;
	cgroups->generation = atomic_fetch_add(&generations, 1) + 1;
	*result = cgroups;
	return 0;
}

struct guest_cgroups *guest_cgroups_share(struct guest_cgroups *cgroups)
{
	if (cgroups)
		atomic_fetch_add(&cgroups->owners, 1);
	return cgroups;
}

void guest_cgroups_free(struct guest_cgroups *cgroups)
{
	if (!cgroups || atomic_fetch_sub(&cgroups->owners, 1) > 1)
		return;
	for (uint32_t i = 0; i < cgroups->loaded; i++)
		free(atomic_load(&atomic_load(&cgroups->entered[i])->path));
	free(cgroups);
}

uint32_t guest_cgroups_generation(const struct guest_cgroups *cgroups)
{
	return cgroups->generation;
}

static uint32_t slot_of(uint64_t id, uint32_t probe)
{
	uint64_t mixed = id * 0x9e3779b97f4a7c15ull;

	return ((uint32_t)(mixed >> 32) + probe) % GUEST_CGROUPS_MAX;
}

/* ENTRY is in STATE_ENTERING. The list has room, as each entry is entered once. */
static void enter(struct guest_cgroups *cgroups, struct entry *entry,
		  const struct guest_cgroup *cgroup)
{
	entry->cgroup = *cgroup;
	atomic_store_explicit(&entry->state, STATE_ENTERED, memory_order_release);
	atomic_store_explicit(&cgroups->entered[atomic_fetch_add(&cgroups->count, 1)], entry,
			      memory_order_release);
}

void guest_cgroups_enter(struct guest_cgroups *cgroups, const struct guest_cgroup *cgroup)
{
	for (uint32_t i = 0; i < PROBES; i++) {
		struct entry *entry = &cgroups->entries[slot_of(cgroup->id, i)];
		uint32_t state = atomic_load_explicit(&entry->state, memory_order_acquire);

		if (state == STATE_FREE &&
		    atomic_compare_exchange_strong(&entry->state, &state, STATE_ENTERING)) {
			enter(cgroups, entry, cgroup);
			return;
		}
		if (state == STATE_ENTERING || entry->cgroup.id == cgroup->id)
			return; /* it may be this one; another sample enters it otherwise */
	}
}

const char *guest_cgroups_path(const struct guest_cgroups *cgroups, uint64_t id)
{
	for (uint32_t i = 0; i < PROBES; i++) {
		const struct entry *entry = &cgroups->entries[slot_of(id, i)];

		if (atomic_load_explicit(&entry->state, memory_order_acquire) != STATE_ENTERED)
			return NULL;
		if (entry->cgroup.id == id)
			return atomic_load_explicit(&entry->path, memory_order_acquire);
	}
	return NULL;
}

/* The root has no name and no parent. */
static bool prepend_all(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
			uint64_t node, struct path_tail *path)
{
	char name[NAME_MAX + 1];
	uint64_t parent, at;

	for (int depth = 0; depth < DEPTH_MAX; depth++, node = parent) {
		if (!kernel_memory_read_u64(memory, node + layout->node_parent, &parent))
			return false;
		if (!parent)
			return *path_tail_text(path) || path_tail_prepend(path, "/", 1);
		if (!kernel_memory_read_u64(memory, node + layout->node_name, &at) ||
		    guest_read_string(memory->view, memory->paging, at, name, sizeof(name)) ||
		    !*name || strchr(name, '/') || !path_tail_prepend(path, name, strlen(name)) ||
		    !path_tail_prepend(path, "/", 1))
			return false;
	}
	return false;
}

static bool make_path(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
		      uint64_t node, struct path_tail *path)
{
	path_tail_begin(path, "");
	return prepend_all(memory, layout, node, path);
}

/* A freed node keeps its id for a while, but has no references. Ids are not reused. */
static bool is_alive(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
		     const struct guest_cgroup *cgroup)
{
	uint64_t id;
	int32_t count;

	return kernel_memory_read_u64(memory, cgroup->node + layout->node_id, &id) &&
	       id == cgroup->id &&
	       kernel_memory_read(memory, cgroup->node + layout->node_count, &count,
				  sizeof(count)) &&
	       count > 0;
}

/* Read twice: a cgroup may be renamed (version 1). NULL: it was removed, or changes. */
static char *read_path(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
		       const struct guest_cgroup *cgroup)
{
	struct path_tail first, second;

	if (!is_alive(memory, layout, cgroup) || !make_path(memory, layout, cgroup->node, &first) ||
	    !make_path(memory, layout, cgroup->node, &second) ||
	    !is_alive(memory, layout, cgroup) ||
	    strcmp(path_tail_text(&first), path_tail_text(&second)) != 0)
		return NULL;
	return strdup(path_tail_text(&first));
}

void guest_cgroups_load(struct guest_cgroups *cgroups, struct kernel_memory *memory,
			const struct guest_cgroup_layout *layout)
{
	uint32_t count = atomic_load_explicit(&cgroups->count, memory_order_acquire);

	if (count > cgroups->loaded + GUEST_CGROUPS_LOAD_MAX)
		count = cgroups->loaded + GUEST_CGROUPS_LOAD_MAX;
	for (; cgroups->loaded < count; cgroups->loaded++) {
		struct entry *entry = atomic_load_explicit(&cgroups->entered[cgroups->loaded],
							   memory_order_acquire);

		if (!entry)
			return; /* being entered */
		atomic_store_explicit(&entry->path, read_path(memory, layout, &entry->cgroup),
				      memory_order_release);
	}
}
