/* SPDX-License-Identifier: Apache-2.0 */
/* What the user is told of the guest agent's clock when a recording ends. */
#ifndef KVMSCOPE_SESSION_AGENT_CLOCK_WARN_H
#define KVMSCOPE_SESSION_AGENT_CLOCK_WARN_H

#include "vmm/agent/agent_host.h"

/* Says so if messages took so long that the guest's time was known badly, or not at all, and if the
 * host's own clock makes it so. Any thread. */
void agent_clock_warn(const struct agent_statistics *statistics);

#endif
