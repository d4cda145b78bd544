/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of a guest whose kernel has no BTF: the layout is found by means of tasks that the agent
 * reports (task_find.h). Collector thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_TASKS_H
#define KVMSCOPE_RECORD_COLLECTOR_TASKS_H

#include <stdint.h>

#include "vmm/record/collector_kernel.h"

/* The newest kernel has changed: nothing is known of its tasks. The time budget stays. */
void collector_tasks_reset(struct collector_kernel *kernel);

/* Searches for the layout if that is due; on success there is a new newest kernel. NOW and errors
 * as in collector_kernel_turn(). */
int collector_tasks_turn(struct collector_kernel *kernel, uint64_t now);

/* Warns if the tasks of FOUND, the next newest kernel, are unknown and no agent can report any. */
void collector_tasks_warn_first(const struct collector_kernel *kernel,
				const struct guest_kernel *found);

/* Warns once per kernel what is missing and why, if an agent reported tasks but they were not
 * found.
 */
void collector_tasks_warn_last(struct collector_kernel *kernel);

#endif
