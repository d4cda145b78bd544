/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's program on this machine's kernel, for tests and benches; nothing of googletest. */
#ifndef KVMSCOPE_TESTS_UNIT_AGENT_PROCESS_H
#define KVMSCOPE_TESTS_UNIT_AGENT_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#define AGENT "build/agent/kvmscope-agent"

/* A directory: what the next agent has as /proc and as /sys/module; NULL: the kernel's own. */
extern const char *agent_process_kernel_files;

/* As the agent's own: perf_event_open(2) may be forbidden here. */
bool agent_process_allows_events(void);

/* Runs the agent on FD; EVENTS: with perf_event_open(2). Its process, which the caller ends. */
pid_t agent_process_run(int fd, bool events);

#endif
