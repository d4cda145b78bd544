/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of an attachment at its end. Main thread. */
#ifndef KVMSCOPE_CLI_ATTACH_SUMMARY_H
#define KVMSCOPE_CLI_ATTACH_SUMMARY_H

#include "vmm/agent/agent_host.h"
#include "vmm/attach/attachment.h"
#include "vmm/record/collector.h"

/* In words, to standard error; SECONDS were sampled, 0: that had not begun. OUTPUT is where the
 * recording is.
 */
void attach_summary_tell(const struct collector_statistics *statistics,
			 const struct attach_statistics *counts, double seconds,
			 const char *output);

/* The same of the guest's agent. */
void attach_summary_tell_agent(const struct agent_statistics *agent);

/* As one JSON object, to standard output; BACKEND is the way's name, AGENT NULL if there is no
 * channel for one. */
void attach_summary_print(const struct collector_statistics *statistics,
			  const struct attach_statistics *counts,
			  const struct agent_statistics *agent, const char *backend,
			  double seconds);

#endif
