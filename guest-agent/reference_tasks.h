/* SPDX-License-Identifier: Apache-2.0 */
/* Idle child processes and threads of the agent that exit by themselves (AGENT_TASKS). The host
 * finds kernel structure offsets by their known values. Their random names and marks are chosen
 * before they start, so that they have them from the first moment.
 */
#ifndef KVMSCOPE_GUEST_AGENT_REFERENCE_TASKS_H
#define KVMSCOPE_GUEST_AGENT_REFERENCE_TASKS_H

#include <stdbool.h>

#include "guest-agent/send_queue.h"

/* Starts them. SIGCHLD must be ignored, as nothing waits for them. A failure, or -EBUSY if the last
 * ones are too recent, is what reference_tasks_send() reports.
 */
void reference_tasks_request(void);

/* Sends them if they were requested and have all started. False: call again soon. */
bool reference_tasks_send(struct output *output);

/* Drops the request. */
void reference_tasks_cancel(void);

#endif
