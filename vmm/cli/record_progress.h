/* SPDX-License-Identifier: Apache-2.0 */
/* Signals, progress and the final summary of kvmscope run and kvmscope attach. Main thread. */
#ifndef KVMSCOPE_CLI_RECORD_PROGRESS_H
#define KVMSCOPE_CLI_RECORD_PROGRESS_H

#include <stdint.h>

#include "vmm/agent/agent_client.h"
#include "vmm/attach/attachment.h"
#include "vmm/record/collector.h"

/*
 * A signalfd for SIGNALS (the last one is 0), which this thread and those it creates later block.
 * SIGPIPE is ignored: writing to a console or file without a reader is an error. The errors of
 * signalfd(2).
 */
int record_signals(const int *signals);

/* The next signal of FD; 0: there is none. */
int record_next_signal(int fd);

/* ms until SECONDS have passed since STARTED (ms of CLOCK_MONOTONIC), at most 1000, so that
 * progress is shown. SECONDS 0: there is no limit. */
int record_time_left(uint64_t started, unsigned int seconds);

/* Shows the progress since STARTED on a terminal. */
void record_progress(uint64_t started, const struct collector_statistics *statistics);

/* Logs the profiling overhead, without that of BESIDES, and hints for a kernel that was not found.
 */
void record_summarize_cost(const struct collector_statistics *statistics, const char *besides);
void record_summarize_kernel(const struct collector_statistics *statistics);

/* Logs the wall time of vCPUs: running, waiting for a CPU, asleep; nothing if it is 0. */
void record_summarize_times(const struct vcpu_times *times);

/* Logs the commands that show the recording OUTPUT, unless it is a pipe or without samples. */
void record_suggest_report(const struct collector_statistics *statistics, const char *output);

/* The summary of kvmscope attach. */

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
