/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel's symbols alone tell of where its tasks are: for whoever finds out the rest. */
#ifndef KVMSCOPE_GUEST_LINUX_TASK_LAYOUT_H
#define KVMSCOPE_GUEST_LINUX_TASK_LAYOUT_H

#include "vmm/guest/linux/task.h"

/*
 * Fills in those parts of LAYOUT, which was zeroed; `current` stays 0 where it is a member of
 * pcpu_hot. False: a part that can not be done without has no symbol. Not on a vCPU thread.
 */
bool guest_task_layout_by_symbols(struct guest_task_layout *layout, const struct symbols *symbols,
				  const struct symbols *per_cpu);

/* The GVA of the stack of init_task (include/linux/init_task.h) into *STACK. Any thread. */
bool guest_task_first_stack(const struct symbols *symbols, uint64_t *stack);

#endif
