/* SPDX-License-Identifier: Apache-2.0 */
/* The summary of kvmscope attach at its end. Main thread. */
#ifndef KVMSCOPE_CLI_ATTACH_SUMMARY_H
#define KVMSCOPE_CLI_ATTACH_SUMMARY_H

#include "vmm/agent/agent_client.h"
#include "vmm/attach/attachment.h"
#include "vmm/record/collector.h"

/* Logs the summary of SECONDS of sampling (0: it had not started); OUTPUT is the recording. */
void attach_summary_log(const struct collector_statistics *statistics,
			const struct attach_statistics *counts, double seconds, const char *output);

/* Logs how well the guest agent worked. */
void attach_summary_log_agent(const struct agent_statistics *agent);

/* Prints the summary as one JSON object to standard output. BACKEND is a backend's name, AGENT is
 * NULL if there is no channel for one. */
void attach_summary_print(const struct collector_statistics *statistics,
			  const struct attach_statistics *counts,
			  const struct agent_statistics *agent, const char *backend,
			  double seconds);

#endif
