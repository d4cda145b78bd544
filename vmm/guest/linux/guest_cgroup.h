/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups of guest tasks: id and path in the unified hierarchy (cgroup version 2,
 * Documentation/admin-guide/cgroup-v2.rst), from guest memory alone. BTF gives the layout:
 *
 *	task_struct.cgroups -> css_set.dfl_cgrp -> cgroup.kn -> kernfs_node: id, name, parent
 *
 * The id is that of PERF_SAMPLE_CGROUP and the inode number of the cgroup's directory in the guest.
 * It is unique during one boot.
 *
 * As with images (user_image.h), a vCPU thread only enters a new cgroup into a table; another
 * thread reads its path later.
 *
 *		with enter	with load
 *	enter	safe		safe		vCPU threads: no lock, allocation, system call
 *	load	safe		one at a time	not on a vCPU thread
 *	path	safe		safe		any thread
 */
#ifndef KVMSCOPE_GUEST_LINUX_GUEST_CGROUP_H
#define KVMSCOPE_GUEST_LINUX_GUEST_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/linux/kernel_memory.h"

struct btf;

#define GUEST_CGROUPS_MAX      16384u /* of one kernel; further ones have no path */
#define GUEST_CGROUPS_LOAD_MAX 64u    /* by one load, which bounds its time */

/* Byte offsets in the structure that a member's name begins with. Immutable once read. */
struct guest_cgroup_layout {
	bool known; /* the rest is valid */
	uint32_t task_users, task_set, set_cgroup, cgroup_node;
	uint32_t node_count, node_id, node_name, node_parent;
};

/*
 * -ENOENT: a part is missing, as in a kernel without cgroups; LAYOUT->known is false. Not on a vCPU
 * thread.
 */
int guest_cgroup_layout_read(struct guest_cgroup_layout *layout, const struct btf *btf);

struct guest_cgroup {
	uint64_t id;   /* 0: unknown */
	uint64_t node; /* GVA of its struct kernfs_node, valid while the cgroup exists */
};

/* The cgroup of the task_struct at TASK (GVA). False, with id 0: it cannot be read, or changed. */
bool guest_cgroup_read(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
		       uint64_t task, struct guest_cgroup *cgroup);
/* The css_set (GVA) of the task_struct at TASK: it differs in another cgroup. One read. */
bool guest_cgroup_read_set(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
			   uint64_t task, uint64_t *set);
/* The struct cgroup (GVA) of the css_set at SET, valid while the set is in use. One read. */
bool guest_cgroup_read_group(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
			     uint64_t set, uint64_t *group);
/* Does the task_struct at TASK exist, with css_set SET? False if its memory may be reused. */
bool guest_cgroup_task_has_set(struct kernel_memory *memory,
			       const struct guest_cgroup_layout *layout, uint64_t task,
			       uint64_t set);

struct guest_cgroups;

int guest_cgroups_create(struct guest_cgroups **cgroups); /* 0 or -ENOMEM */
/* Returns CGROUPS with one more reference; each owner frees it. NULL is allowed. Any thread. */
struct guest_cgroups *guest_cgroups_share(struct guest_cgroups *cgroups);
/* Releases a reference. NULL is a no-op. */
void guest_cgroups_free(struct guest_cgroups *cgroups);

/* A number that no other table of this process has. */
uint32_t guest_cgroups_generation(const struct guest_cgroups *cgroups);
/* Enters CGROUP, so that the next load reads its path. No-op if it is known or the table is full.
 */
void guest_cgroups_enter(struct guest_cgroups *cgroups, const struct guest_cgroup *cgroup);
/*
 * Reads the paths of entered cgroups in order, at most GUEST_CGROUPS_LOAD_MAX. One that was removed
 * in the meantime has no path.
 */
void guest_cgroups_load(struct guest_cgroups *cgroups, struct kernel_memory *memory,
			const struct guest_cgroup_layout *layout);
/*
 * The path from the root of the hierarchy, which is "/"; unmodified bytes of the guest. NULL: not
 * known (yet). Valid as long as CGROUPS.
 */
const char *guest_cgroups_path(const struct guest_cgroups *cgroups, uint64_t id);

#endif
