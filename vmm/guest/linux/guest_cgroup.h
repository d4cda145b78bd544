/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which control group a task of the guest is in, and what that is called: its
 * place in the unified hierarchy (cgroup version 2, Documentation/admin-guide/cgroup-v2.rst),
 * from guest memory alone. Where the members lie says the kernel's BTF:
 *
 *	task_struct.cgroups -> css_set.dfl_cgrp -> cgroup.kn -> kernfs_node: id, name, parent
 *
 * The id is the one that perf calls a cgroup by (PERF_SAMPLE_CGROUP), and the
 * inode number of its directory in the guest. No two cgroups of one boot have the same.
 *
 * As with images (user_image.h), a vCPU thread that finds a cgroup for the
 * first time enters it into a table and goes on; its path is read later, by another thread.
 *
 *			with enter	settle
 *	enter		safe		safe		vCPU threads: no lock, allocation or system
 *call settle		safe		one at a time	no vCPU thread
 *	name		safe		safe		any thread
 */
#ifndef KVMSCOPE_GUEST_LINUX_GUEST_CGROUP_H
#define KVMSCOPE_GUEST_LINUX_GUEST_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/path_tail.h"

struct btf;

#define GUEST_CGROUPS_MAX     16384u /* of one kernel; more have no name */
#define GUEST_CGROUP_PATH_MAX PATH_TAIL_MAX

#define GUEST_CGROUPS_LOAD_MAX 64u /* by one settle: its caller has other things to do */

/* Byte offsets in the structure that a member's name begins with. Immutable once read. */
struct guest_cgroup_layout {
	bool known; /* else nothing below holds */
	uint32_t task_users, task_set, set_cgroup, cgroup_node;
	uint32_t node_count, node_id, node_name, node_parent;
};

/* -ENOENT: a part is not there, as in a kernel without cgroups; LAYOUT->known is then false. No
 * vCPU thread.
 */
int guest_cgroup_layout_read(struct guest_cgroup_layout *layout, const struct btf *btf);

/* What tells one from all others. */
struct guest_cgroup {
	uint64_t id;   /* 0: not known */
	uint64_t node; /* GVA of its struct kernfs_node, while that lives */
};

/* That of the task_struct at TASK (GVA). False, and the id 0: it could not be read, or changed
 * meanwhile. */
bool guest_cgroup_read(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
		       uint64_t task, struct guest_cgroup *cgroup);

/* GVA of the css_set that the task_struct at TASK holds: it has another one in another cgroup. One
 * read. */
bool guest_cgroup_read_set(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
			   uint64_t task, uint64_t *set);

/* GVA of the struct cgroup that the css_set at SET is of, for as long as anybody holds it. One
 * read. */
bool guest_cgroup_read_group(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
			     uint64_t set, uint64_t *group);

/* Does the task_struct at TASK exist, and hold SET? What does not is memory that can be anybody's.
 */
bool guest_cgroup_task_has_set(struct kernel_memory *memory,
			       const struct guest_cgroup_layout *layout, uint64_t task,
			       uint64_t set);

struct guest_cgroups;

int guest_cgroups_create(struct guest_cgroups **cgroups); /* 0 or -ENOMEM */
/* CGROUPS itself, for one more owner; each is to free it. NULL works with both. Any thread. */
struct guest_cgroups *guest_cgroups_share(struct guest_cgroups *cgroups);
/* The last owner's call frees it. */
void guest_cgroups_free(struct guest_cgroups *cgroups);

/* Tells this table from any other that there was. */
uint32_t guest_cgroups_generation(const struct guest_cgroups *cgroups);

/* Has CGROUP's path read by the next settle, unless it is known or there is no room. */
void guest_cgroups_enter(struct guest_cgroups *cgroups, const struct guest_cgroup *cgroup);

/*
 * Reads the paths of those that were entered and not settled yet, in order,
 * GUEST_CGROUPS_LOAD_MAX at most. One that is gone by then has none.
 */
void guest_cgroups_load(struct guest_cgroups *cgroups, struct kernel_memory *memory,
			const struct guest_cgroup_layout *layout);

/*
 * The path from the hierarchy's root, which is "/"; of the guest's bytes, not cleaned. NULL: not
 * known (yet). Lives as long as CGROUPS.
 */
const char *guest_cgroups_path(const struct guest_cgroups *cgroups, uint64_t id);

#endif
