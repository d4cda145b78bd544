/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a file of the guest, out of its kernel's page cache: an xarray of
 * struct page by their place in the file (include/linux/xarray.h), whose
 * place in the array of all struct page is that of their memory.
 */
#ifndef KVMSCOPE_GUEST_LINUX_PAGE_CACHE_H
#define KVMSCOPE_GUEST_LINUX_PAGE_CACHE_H

#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/linux/vma_layout.h"

/*
 * SIZE bytes from OFFSET on of the file whose struct inode is at INODE. False: not all are in
 * memory; TO is undefined. The guest may change or move them meanwhile, so the caller checks what
 * they say. No vCPU thread.
 */
bool page_cache_read(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		     uint64_t inode, uint64_t offset, void *to, size_t size);

#endif
