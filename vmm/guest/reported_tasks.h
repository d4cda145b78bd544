/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of the guest with known values, as reported by its agent (docs/agent-protocol.md, "Tasks").
 * All of it is untrusted.
 */
#ifndef KVMSCOPE_GUEST_REPORTED_TASKS_H
#define KVMSCOPE_GUEST_REPORTED_TASKS_H

#include <stddef.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/span.h"

/* With fewer, values could be found at a wrong offset by chance. */
#define REPORTED_TASKS_PROCESSES 3u
#define REPORTED_TASKS_THREADS   2u /* other than the first threads of their processes */

struct reported_tasks {
	size_t count;
	/* Names are NUL-terminated; names and pids are unique; each thread's process is included.
	 */
	struct agent_task tasks[AGENT_TASKS_MAX];
};

/*
 * Parses the PAYLOAD of an AGENT_TASKS message. -EINVAL: it is invalid or has too few tasks;
 * otherwise the error that the agent reports. Any thread.
 */
int reported_tasks_read(struct reported_tasks *reported, struct span payload);

#endif
