/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path of a file of the guest, from its dentry up through the mounts that
 * it is below, as fs/d_path.c makes it: from the root of the mount namespace,
 * with " (deleted)" behind it where the name is gone.
 */
#ifndef KVMSCOPE_GUEST_LINUX_DENTRY_PATH_H
#define KVMSCOPE_GUEST_LINUX_DENTRY_PATH_H

#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/linux/vma_layout.h"
#include "vmm/guest/path_tail.h"

#define DENTRY_PATH_MAX PATH_TAIL_MAX

/*
 * The path of the file at DENTRY below the vfsmount MOUNT (GVAs), into PATH of DENTRY_PATH_MAX
 * bytes. -EFAULT: it can not be read, does not end, changes, or is of a mount that was taken away.
 * The bytes are the guest's, none of them a slash but between names. No vCPU thread.
 */
int dentry_path(struct kernel_memory *memory, const struct guest_vma_layout *layout, uint64_t mount,
		uint64_t dentry, char *path);

#endif
