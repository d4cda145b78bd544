/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks of a guest whose kernel has no BTF: where they are is found by those that its agent tells of
 * (task_find.h). On the collector's thread.
 */
#ifndef KVMSCOPE_PROFILE_COLLECTOR_TASKS_H
#define KVMSCOPE_PROFILE_COLLECTOR_TASKS_H

#include <stdint.h>

#include "vmm/profile/collector_kernel.h"

/* Looks for them, if it is time to, in the newest kernel, which then is another one. NOW as in
 * collector_kernel_turn(). */
void collector_tasks_turn(struct collector_kernel *kernel, uint64_t now);

/* Says what is missing, and why, if the tasks of FOUND, the newest kernel or what becomes that, are not
 * known. */
void collector_tasks_warn(const struct collector_kernel *kernel, const struct guest_kernel *found);

#endif
