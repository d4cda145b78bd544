/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether this host's KVM can watch something in a guest. A process of its own probes this when it
 * is first needed, which may be at a bp add: by then no thread of the run may create processes or
 * VMs. The process handles no input but the number of a probe.
 */
#ifndef KVMSCOPE_CLI_RUN_WATCH_PROBE_H
#define KVMSCOPE_CLI_RUN_WATCH_PROBE_H

#include <sys/types.h>

#include "vmm/debug/watch_spec.h"
#include "vmm/machine/host_probe.h"

enum watch_probe { WATCH_PROBE_CODE, WATCH_PROBE_STEP, WATCH_PROBE_DATA, WATCH_PROBES };

struct run_watch_probe {
	pid_t pid;
	int fd;                              /* connected to the process; -1: there is none */
	struct probe_row rows[WATCH_PROBES]; /* without an id: not tried yet */
};

/* Starts the process. Forks: there must be no other threads. 0, or a negative errno with its
 * message. */
int run_watch_probe_start(struct run_watch_probe *probe);
/* Ends it. A no-op without one. */
void run_watch_probe_end(struct run_watch_probe *probe);

/* 0 if this KVM can watch SPEC; -ENOTSUP with the reason; -EPIPE: the process has ended. One thread
 * at a time. */
int run_watch_probe_check(struct run_watch_probe *probe, const struct watch_spec *spec);

#endif
