/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ran before the events were opened, from /proc, told in the same
 * records: COMM for each thread, MMAP2 for each mapping of code.
 *
 * Raced safely: the events are open already, and drained before and after a
 * process is looked at. If one of them was about that process it is looked
 * at again; else what was seen held at the time it is told with, and whatever
 * changes it comes with a later time. A process that never holds still is left
 * out: its own events tell of it.
 */
#ifndef KVMSCOPE_GUEST_AGENT_PROC_SNAPSHOT_H
#define KVMSCOPE_GUEST_AGENT_PROC_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-agent/kernel_events.h"
#include "guest-agent/send_queue.h"

struct snapshot {
	void *directory;        /* /proc, NULL when it is done */
	bool anew;              /* events were lost: what was told of a process before is over */
	pid_t pending;          /* a process that there was no room for, or 0 */
	uint64_t unstable, cut; /* as in struct agent_round */
};

/*
 * Begins; what was begun before is forgotten. Without /proc it is done at once. ANEW: each process
 * is told as if it had just run its program (a COMM with PERF_RECORD_MISC_COMM_EXEC, and first what
 * that mapped), as that may have been lost.
 */
void snapshot_begin(struct snapshot *snapshot, bool anew);
void snapshot_end(struct snapshot *snapshot);

/*
 * One process more. False where OUTPUT had no room: to be tried again later.
 * The first call that finds none ends the snapshot.
 */
bool snapshot_step(struct snapshot *snapshot, struct events *events, struct output *output);

/* Tells PID alone, anew. False where OUTPUT had no room. */
bool snapshot_process(struct snapshot *snapshot, pid_t pid, struct events *events,
		      struct output *output);

#endif
