/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest processes with memory of their own, and their page tables, from the kernel's list of
 * processes (for_each_process(), include/linux/sched/signal.h), while the guest runs and changes
 * it. Not on a vCPU thread.
 */
#ifndef KVMSCOPE_GUEST_LINUX_TASK_LIST_H
#define KVMSCOPE_GUEST_LINUX_TASK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/task.h"

struct guest_process {
	uint32_t pid;  /* tgid */
	uint64_t root; /* GPA of its page tables, as CR3 has it in the kernel */
};

/*
 * Fills in at most MAX processes and returns their number. -ENOENT: the kernel's list is unknown;
 * -EAGAIN: it changed during the read, or there are more.
 */
int guest_task_list(const struct guest_task_layout *layout, const struct guest_view *view,
		    const struct guest_paging *kernel_paging, struct guest_process *list,
		    size_t max);

/*
 * Do the tables at ROOT, of a live process, have a second one for user space (KPTI,
 * arch/x86/mm/pti.c)? Then both map user space by the same lower tables, which no two processes
 * share.
 */
bool guest_task_has_pti_pair(const struct guest_view *view, uint64_t root);

#endif
