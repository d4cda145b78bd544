/* SPDX-License-Identifier: Apache-2.0 */
/* Path and content of a file of the guest, from its kernel's dentries and page cache. */
#ifndef KVMSCOPE_GUEST_LINUX_GUEST_FILE_H
#define KVMSCOPE_GUEST_LINUX_GUEST_FILE_H

#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/linux/path_tail.h"
#include "vmm/guest/linux/vma_layout.h"

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
