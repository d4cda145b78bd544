/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMAs of the guest, found in the tree of their address space, and the identity of the mapped file.
 * The guest may change all of it between two reads and may be hostile: walks are bounded, and
 * results are read a second time.
 *
 * No lock, allocation or system call: usable on vCPU threads.
 */
#ifndef KVMSCOPE_GUEST_LINUX_VMA_H
#define KVMSCOPE_GUEST_LINUX_VMA_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/linux/user_image.h"
#include "vmm/guest/linux/vma_layout.h"

#define VMA_READ   (1ull << 0) /* include/linux/mm.h, VM_* */
#define VMA_WRITE  (1ull << 1)
#define VMA_EXEC   (1ull << 2)
#define VMA_SHARED (1ull << 3)

struct guest_vma {
	uint64_t start, end; /* GVA, in user space */
	uint64_t page;       /* of the file at START, in pages of 4 KiB */
	uint64_t flags;      /* VMA_* and others */
	uint64_t file;       /* GVA of its struct file; 0: none */
	uint64_t operations; /* GVA of its vm_ops; 0: none */
};

/*
 * Finds the VMA that contains ADDRESS in the address space MM, and the key of its image. False:
 * there is none, or it cannot be read or changed meanwhile.
 */
bool guest_vma_find(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		    uint64_t mm, uint64_t address, struct guest_vma *vma,
		    struct user_image_key *key);

/*
 * Reads KEY again from its own addresses. Returns whether it is still the same file. For readers
 * that hold no reference on the file.
 */
bool guest_vma_is_same_file(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			    const struct user_image_key *key);

#endif
