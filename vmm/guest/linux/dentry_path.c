/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/dentry_path.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define STEPS_MAX 512 /* names and mounts; a path has 2048 names at most, each of one letter */
#define DELETED   " (deleted)"

static bool prepend_name(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			 uint64_t dentry, struct path_tail *path)
{
	char name[NAME_MAX];
	uint64_t hash, at;
	uint32_t length;

	if (!kernel_memory_read_u64(memory, dentry + layout->dentry_hash, &hash) ||
	    !kernel_memory_read_u64(memory, dentry + layout->dentry_name, &at))
		return false;
	length = (uint32_t)(hash >> 32);
	return length && length <= sizeof(name) && kernel_memory_read(memory, at, name, length) &&
	       !memchr(name, '\0', length) && path_tail_prepend(path, name, length) &&
	       path_tail_prepend(path, "/", 1);
}

/*
 * From the root of a mount to where that is mounted; *IS_TOP: it is nowhere, as the first of a
 * namespace. What was unmounted since, as all is of a namespace whose last process has ended, leads
 * nowhere, too: that it is in no namespace is written first (kernel: fs/namespace.c,
 * umount_tree()).
 */
static bool leave_mount(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			uint64_t *mount, uint64_t *dentry, bool *is_top)
{
	uint64_t own = *mount - layout->mount_embedded, parent, space;

	if (!kernel_memory_read_u64(memory, own + layout->mount_parent, &parent) ||
	    !kernel_memory_read_u64(memory, own + layout->mount_point, dentry) ||
	    !kernel_memory_read_u64(memory, own + layout->mount_namespace, &space) || !space)
		return false;
	*is_top = parent == own;
	*mount = parent + layout->mount_embedded;
	return true;
}

/* A dentry that is its own parent and no mount's root has no place in a tree: shared memory, memfd.
 */
static bool prepend_all(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			uint64_t mount, uint64_t dentry, struct path_tail *path)
{
	for (int step = 0; step < STEPS_MAX; step++) {
		uint64_t root, parent;
		bool is_top;

		if (!kernel_memory_read_u64(memory, mount + layout->vfsmount_root, &root))
			return false;
		if (dentry == root) {
			if (!leave_mount(memory, layout, &mount, &dentry, &is_top))
				return false;
			if (is_top)
				return true;
			continue;
		}
		if (!kernel_memory_read_u64(memory, dentry + layout->dentry_parent, &parent) ||
		    !prepend_name(memory, layout, dentry, path))
			return false;
		if (parent == dentry)
			return true;
		dentry = parent;
	}
	return false;
}

static bool make(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		 uint64_t mount, uint64_t dentry, struct path_tail *path)
{
	uint64_t hashed;

	path_tail_begin(path);
	if (!kernel_memory_read_u64(memory, dentry + layout->dentry_unhashed, &hashed))
		return false;
	return path_tail_prepend(path, hashed ? "" : DELETED, hashed ? 1 : sizeof(DELETED)) &&
	       prepend_all(memory, layout, mount, dentry, path) && *path_tail_text(path) == '/';
}

int dentry_path(struct kernel_memory *memory, const struct guest_vma_layout *layout, uint64_t mount,
		uint64_t dentry, char *path)
{
	struct path_tail first, second;

	if (!make(memory, layout, mount, dentry, &first) ||
	    !make(memory, layout, mount, dentry, &second) || !path_tail_equal(&first, &second))
		return -EFAULT;
	memcpy(path, path_tail_text(&first), sizeof(first.bytes) - first.start);
	return 0;
}
