/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks of a guest whose kernel has no BTF: where they are is found by those that its agent
 * tells of (task_find.h). On the collector's thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_TASKS_H
#define KVMSCOPE_RECORD_COLLECTOR_TASKS_H

#include <stdint.h>

#include "vmm/record/collector_kernel.h"

/* The newest kernel is another one: nothing is known of its tasks but how long others were looked
 * for. */
void collector_tasks_reset(struct collector_kernel *kernel);

/* Looks for them, if it is time to, in the newest kernel, which then is another one. NOW and errors
 * as in collector_kernel_turn(). */
int collector_tasks_turn(struct collector_kernel *kernel, uint64_t now);

/* Says what is missing if the tasks of FOUND, which becomes the newest kernel, are not known and no
 * agent may tell any. */
void collector_tasks_warn_first(const struct collector_kernel *kernel,
				const struct guest_kernel *found);

/* Says what is missing in the newest kernel, and why, if an agent might have told but they were not
 * found. Once for each kernel. */
void collector_tasks_warn_last(struct collector_kernel *kernel);

#endif
