/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's program on this machine's kernel, for tests and benches, without googletest. */
#ifndef KVMSCOPE_TESTS_UNIT_AGENT_PROCESS_H
#define KVMSCOPE_TESTS_UNIT_AGENT_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#define AGENT "build/agent/kvmscope-agent"

/* The directories that the next agent uses as /proc and /sys/module; NULL: the kernel's own. */
extern const char *agent_process_kernel_files;

/* As in the agent: perf_event_open(2) may be forbidden here. */
bool agent_process_allows_events(void);

/*
 * Runs the agent on FD, with perf_event_open(2) if EVENTS is set. Returns its process, which the
 * caller ends.
 */
pid_t agent_process_run(int fd, bool events);

#endif
