/* SPDX-License-Identifier: Apache-2.0 */
/* What kvmscope run and kvmscope attach have in common while they record, and at the end. Main
 * thread. */
#ifndef KVMSCOPE_CLI_RECORD_PROGRESS_H
#define KVMSCOPE_CLI_RECORD_PROGRESS_H

#include <stdint.h>

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

/* Logs what sampling cost the guest besides BESIDES, and hints for a kernel that was not found. */
void record_summarize_cost(const struct collector_statistics *statistics, const char *besides);
void record_summarize_kernel(const struct collector_statistics *statistics);

#endif
