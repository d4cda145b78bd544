/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a kernel that has no BTF keeps what its tasks are, found by tasks
 * whose values are known. No place is taken for what is usual: each is the
 * only one at which all that is known is found, or there is none.
 *
 *	comm         where the first task, which has a symbol, is called as every
 *	             kernel calls it
 *	a task       on a list through the first task, by a name drawn by chance;
 *	             a thread on a list through its process
 *	pid, tgid    where each task has its own, and the first task 0
 *	stack        where the first task has its stack, which has a symbol, and
 *	             each other task another one
 *	page tables  where the kernel's own memory, init_mm, has those that have a
 *	             symbol
 *	mm           where each process has memory whose page tables lead to what it
 *	             has written there. A kernel has two such places; active_mm is
 *	             not 0 in any task that runs
 *
 * All else of a task stays unknown, as does what is mapped. The guest is
 * hostile: what it tells, and has in its memory, can make its own names wrong,
 * and costs so many reads and no more.
 */
#ifndef KVMSCOPE_GUEST_LINUX_TASK_FIND_H
#define KVMSCOPE_GUEST_LINUX_TASK_FIND_H

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/reported_tasks.h"

/*
 * Of KERNEL, whose symbols are known, as long as the tasks of TOLD live. The guest runs on
 * meanwhile, so what can not be told now may be a moment later. -ENOENT: something was not found;
 * -ENOTUNIQ: in more than one place; -E2BIG: there is more to look at than is; -EAGAIN: it changed;
 * -ENOMEM. The message says what. Takes some milliseconds: never on a vCPU thread.
 */
int guest_task_layout_find(struct guest_task_layout *layout, const struct guest_kernel *kernel,
			   const struct guest_view *view, const struct reported_tasks *told);

/* Can they be found at all in KERNEL, by its symbols, which stay as they are? -ENOENT, with a
 * message. Any thread. */
int guest_task_layout_check(const struct guest_kernel *kernel);

#endif
