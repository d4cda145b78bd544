/* SPDX-License-Identifier: Apache-2.0 */
/* What the user is told of how a guest agent knows of the guest's processes, when a recording ends.
 */
#ifndef KVMSCOPE_SESSION_AGENT_WAY_WARN_H
#define KVMSCOPE_SESSION_AGENT_WAY_WARN_H

#include "vmm/agent/agent_host.h"

/* Of an agent that answered: says so if it is not by events of its guest's kernel. Any thread. */
void agent_way_warn(const struct agent_statistics *statistics);

#endif
