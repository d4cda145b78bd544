/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's kernel and tasks by its agent, for a collector (collector_options, told and tasks).
 */
#ifndef KVMSCOPE_SESSION_AGENT_KERNEL_H
#define KVMSCOPE_SESSION_AGENT_KERNEL_H

#include <stdint.h>

#include "vmm/agent/agent_host.h"
#include "vmm/guest/linux/reported_kernel.h"
#include "vmm/guest/reported_tasks.h"

/*
 * What AGENT told last and nobody took; the caller's. NULL: there is nothing, or nothing of use;
 * then it is asked for what is new since MODULES_HASH (0: anything). Any one thread at a time.
 */
struct reported_kernel *agent_kernel_take(struct agent *agent, uint64_t modules_hash);

/* As collector_options.tasks. */
int agent_kernel_take_tasks(struct agent *agent, bool ask, struct reported_tasks *told);

/* Says so if what AGENT was asked for in vain would have been of use. */
void agent_kernel_warn(const struct agent_statistics *statistics);

#endif
