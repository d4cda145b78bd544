/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the layout of tasks in a kernel without BTF, with tasks whose values are known. Nothing is
 * assumed from common layouts: each offset is the only one at which all known values are found, or
 * it is not found.
 *
 *	comm         where the first task, which has a symbol, has the name that it
 *	             has in every kernel
 *	a task       on a list through the first task, by a random name;
 *	             a thread on a list through its process
 *	pid, tgid    where each task has its own, and the first task 0
 *	stack        where the first task has its stack, which has a symbol, and
 *	             each other task a different one
 *	page tables  where the kernel's own memory, init_mm, has those that have a
 *	             symbol
 *	mm           where each process has memory whose page tables lead to what it
 *	             has written there. A kernel has two such members; active_mm is
 *	             not 0 in any running task
 *
 * Other members of a task and the mappings stay unknown. The guest is hostile: what it reports and
 * has in memory can make its own symbols wrong, but the number of reads is bounded.
 */
#ifndef KVMSCOPE_GUEST_LINUX_TASK_FIND_H
#define KVMSCOPE_GUEST_LINUX_TASK_FIND_H

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/reported_tasks.h"

/*
 * KERNEL has known symbols; the REPORTED tasks must be alive. The guest runs meanwhile, so a failed
 * call may succeed later. -ENOENT: a part was not found; -ENOTUNIQ: it is in more than one place;
 * -E2BIG: the search reached its limit; -EAGAIN: memory changed; -ENOMEM. With a message. Takes
 * some milliseconds: not on a vCPU thread.
 */
int guest_task_layout_find(struct guest_task_layout *layout, const struct guest_kernel *kernel,
			   const struct guest_view *view, const struct reported_tasks *reported);

/* Does KERNEL have the symbols that the search needs? 0 or -ENOENT, with a message. Any thread. */
int guest_task_layout_check(const struct guest_kernel *kernel);

#endif
