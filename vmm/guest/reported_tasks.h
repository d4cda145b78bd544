/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of the guest whose values are known, as its agent tells them (docs/agent-protocol.md,
 * "Tasks"). All of it is the guest's word.
 */
#ifndef KVMSCOPE_GUEST_REPORTED_TASKS_H
#define KVMSCOPE_GUEST_REPORTED_TASKS_H

#include <stddef.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/span.h"

/* Fewer could agree by chance in where their values stand. */
#define REPORTED_TASKS_PROCESSES 3u
#define REPORTED_TASKS_THREADS   2u /* other than the first ones of their processes */

struct reported_tasks {
	size_t count;
	/* Their names end with a NUL, and no two have the same one, nor the same pid; each thread's
	 * process is told, too. */
	struct agent_task tasks[AGENT_TASKS_MAX];
};

/* PAYLOAD is of a message AGENT_TASKS. -EINVAL: it can not be, or tells fewer than are needed; the
 * error that it tells. Any thread. */
int reported_tasks_read(struct reported_tasks *told, struct span payload);

#endif
