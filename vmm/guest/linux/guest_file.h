/* SPDX-License-Identifier: Apache-2.0 */
/* Path and content of a file of the guest, from its kernel's dentries and page cache. */
#ifndef KVMSCOPE_GUEST_LINUX_GUEST_FILE_H
#define KVMSCOPE_GUEST_LINUX_GUEST_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/linux/vma_layout.h"

#define PATH_TAIL_MAX 4096 /* Linux PATH_MAX, including the NUL */

/* A path that is built from its last component towards the root. Any thread. */
struct path_tail {
	char bytes[PATH_TAIL_MAX]; /* filled from the end; the path starts at START */
	size_t start;
};

/* Puts SIZE bytes in front of PATH. False if there is no room; PATH is then unchanged. */
static inline bool path_tail_prepend(struct path_tail *path, const char *bytes, size_t size)
{
	if (size > path->start)
		return false;
	path->start -= size;
	memcpy(path->bytes + path->start, bytes, size);
	return true;
}

/* Starts PATH with SUFFIX and its NUL. */
static inline void path_tail_begin(struct path_tail *path, const char *suffix)
{
	path->start = sizeof(path->bytes);
	path_tail_prepend(path, suffix, strlen(suffix) + 1);
}

static inline const char *path_tail_text(const struct path_tail *path)
{
	return path->bytes + path->start;
}

/*
 * Builds the path of the file at DENTRY below the vfsmount MOUNT (GVAs) in PATH of PATH_TAIL_MAX
 * bytes, as fs/d_path.c does: from the root of the mount namespace, with " (deleted)" appended if
 * the name was removed. -EFAULT: it cannot be read, does not end, changes, or is on a mount that
 * was unmounted. The bytes are the guest's; slashes occur only between names. Not on a vCPU thread.
 */
int guest_file_path(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		    uint64_t mount, uint64_t dentry, char *path);

/*
 * Reads SIZE bytes at OFFSET of the file whose struct inode is at INODE (GVA) from the page cache.
 * False: not all of them are in memory; TO is undefined. The guest may change or move them at the
 * same time, so the caller checks the content. Not on a vCPU thread.
 */
bool guest_file_read(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		     uint64_t inode, uint64_t offset, void *to, size_t size);

#endif
