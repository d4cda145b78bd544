/* SPDX-License-Identifier: Apache-2.0 */
/* Reports what ran before the events were opened, from /proc and in the same records: COMM for each
 * thread, MMAP2 for each code mapping. Races are handled: the events are open already, and are
 * drained before and after a process is read. If one of them concerns that process it is read
 * again; otherwise the result was true at its time, and every change has a later time. A process
 * that changes each time is left out: its own events report it.
 */
#ifndef KVMSCOPE_GUEST_AGENT_PROC_SNAPSHOT_H
#define KVMSCOPE_GUEST_AGENT_PROC_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-agent/kernel_events.h"
#include "guest-agent/send_queue.h"

struct snapshot {
	void *directory;        /* /proc; NULL: complete */
	bool restart;           /* events were lost: earlier records of a process are obsolete */
	pid_t pending;          /* a process that OUTPUT had no room for, or 0 */
	uint64_t unstable, cut; /* as in struct agent_round */
};

/* Starts a snapshot and cancels an earlier one. Without /proc it is complete at once. RESTART: each
 * process is reported as if it had just executed its program (a COMM with
 * PERF_RECORD_MISC_COMM_EXEC, then the program's mapping first), as that event may have been lost.
 */
void snapshot_begin(struct snapshot *snapshot, bool restart);
void snapshot_end(struct snapshot *snapshot);

/* Reports the next process. False if OUTPUT had no room: call again later. The first call without a
 * process ends the snapshot.
 */
bool snapshot_step(struct snapshot *snapshot, struct events *events, struct output *output);

/* Reports only PID, with RESTART. False if OUTPUT had no room. */
bool snapshot_process(struct snapshot *snapshot, pid_t pid, struct events *events,
		      struct output *output);

#endif
