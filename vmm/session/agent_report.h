/* SPDX-License-Identifier: Apache-2.0 */
/* Log messages about the guest agent at the end of a recording. */
#ifndef KVMSCOPE_SESSION_AGENT_REPORT_H
#define KVMSCOPE_SESSION_AGENT_REPORT_H

#include "vmm/agent/agent_client.h"

/* For an agent that answered: logs how it detects processes, what was lost, how well its clock was
 * known, and what else it could not do. Any thread. */
void agent_report(const struct agent_statistics *statistics);

#endif
