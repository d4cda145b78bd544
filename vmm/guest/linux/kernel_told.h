/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest's agent told of the kernel (reported_kernel.h), held against guest memory: nothing
 * is used that memory does not confirm. Part of guest_kernel.c.
 */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_TOLD_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_TOLD_H

#include <stdbool.h>

#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/linux/reported_kernel.h"

/* Is TOLD of KERNEL, whose place and build id are known: of the same boot and build? */
bool reported_kernel_matches(const struct guest_kernel *kernel, const struct reported_kernel *told);

/*
 * The modules of KERNEL->told whose build ids lie in guest memory, now and at each look before,
 * where they were told to lie: the note proves where the read-only data are, and since Linux 6.4
 * the text of a module that was loaded again may be elsewhere all the same. Their symbols join
 * SYMBOLS (not finished) unless that is NULL. -ENOMEM.
 */
int reported_kernel_list_modules(struct module_list *list, const struct guest_kernel *kernel,
				 const struct guest_view *view, struct symbols *symbols);

#endif
