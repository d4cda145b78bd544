/* SPDX-License-Identifier: Apache-2.0 */
/* Searches guest memory for a kernel and its symbols. Part of guest_kernel.c. */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_SEARCH_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_SEARCH_H

#include "vmm/guest/linux/guest_kernel.h"

/*
 * Finds the kernel that a vCPU with REGISTERS runs, and fills in the symbols, text range, banner
 * and release of KERNEL. *PAGING becomes one that maps it. -EAGAIN: the kernel is still starting;
 * otherwise as guest_kernel_find(). With a message.
 */
int kernel_search(struct guest_kernel *kernel, const struct guest_view *view,
		  const struct guest_registers *registers, struct guest_paging *paging);

/*
 * The same for a KERNEL whose symbols (finished) come from elsewhere. -EINVAL: they are not those
 * of the running kernel; -EILSEQ, without a message: they are not a kernel's.
 */
int kernel_search_confirm(struct guest_kernel *kernel, const struct guest_view *view,
			  const struct guest_registers *registers, struct guest_paging *paging);

#endif
