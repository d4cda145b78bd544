/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes and threads of the agent's own that do nothing, and end by
 * themselves: AGENT_TASKS. Their names and marks are drawn before they
 * begin, so that they have them from their first moment on.
 */
#ifndef KVMSCOPE_GUEST_AGENT_KNOWN_TASKS_H
#define KVMSCOPE_GUEST_AGENT_KNOWN_TASKS_H

#include <stdbool.h>

#include "guest-agent/send_queue.h"

/*
 * Begins them: SIGCHLD is ignored, as their ends are nobody's to wait for. Where the last ones are
 * not a second old, or it fails, that is what will be told.
 */
void reference_tasks_request(void);

/* Tells them, if they are asked for and all there. False: to be called again soon. */
bool reference_tasks_send(struct output *output);

/* Nobody wants them any more. */
void reference_tasks_cancel(void);

#endif
