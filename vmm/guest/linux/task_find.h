/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the layout of tasks in a kernel without BTF, by means of tasks with known values. Nothing
 * is assumed from common layouts: an offset is accepted only if it is the only one at which all
 * tasks have their known values.
 *
 *	comm         the first task (which has a symbol) has the name that it has in all
 *	             kernels
 *	a task       found on a list through the first task, by its random name;
 *	             a thread is found on a list through its process
 *	pid, tgid    each task has its own number, the first task has 0
 *	stack        the first task has its stack, which has a symbol; all other tasks
 *	             have different ones
 *	page tables  init_mm, the kernel's own memory, points to init_top_pgt
 *	mm           each process has memory whose page tables lead to the mark that it has
 *	             written there. Two members do; active_mm is the one that is not 0 in
 *	             any running task
 *
 * Other members of a task, and the mappings, stay unknown. The guest is hostile: it can make its
 * own symbols wrong, but the number of reads is bounded.
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
