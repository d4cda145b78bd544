/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest's own kernel tells of its processes: one perf event of type
 * dummy for each CPU, which counts nothing, and whose ring gets a record for
 * each exec, fork, exit and mapping of code (perf_event_open(2)).
 *
 * Where the kernel does not allow that, its process connector takes the place
 * of the rings (connector.h), if it has one.
 *
 * A ring that is not drained in time is full: the kernel then drops records,
 * and says how many in a record of its own. So not reading is how the agent
 * drops; nothing ever waits for it.
 */
#ifndef KVMSCOPE_GUEST_AGENT_PERF_SAMPLING_H
#define KVMSCOPE_GUEST_AGENT_PERF_SAMPLING_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-agent/connector.h"
#include "guest-agent/send_queue.h"

#define EVENTS_CPUS_MAX 512

struct perf_event_mmap_page;

struct events {
	struct connector connector;         /* open: it is in slot 0, and the only one */
	unsigned int cpus;                  /* slots in use; 0: there are no events */
	struct pollfd fds[EVENTS_CPUS_MAX]; /* of each CPU; fd -1: not online */
	struct perf_event_mmap_page *pages[EVENTS_CPUS_MAX];
	bool full[EVENTS_CPUS_MAX];    /* its ring was, and that is not told yet */
	bool emptied[EVENTS_CPUS_MAX]; /* the latest of it that was told is that it is empty again
					*/
	unsigned int features;         /* enum agent_features that the kernel can do */
	size_t data_size;              /* bytes of each ring, a power of two */
	uint64_t lost;                 /* records that the kernel dropped */
	bool gap; /* it has, or may have, since this was made false: a ring was full, and is empty
		   */
	pid_t watched; /* was there a record of this process, or a gap, since `touched` was made
			  false? */
	bool touched;
};

/*
 * Opens the events of all CPUs. Negative errno of perf_event_open(2) where the kernel does not
 * allow it: then the connector is open, or nothing (no CPUs).
 */
int events_open(struct events *events);

static inline bool events_by_connector(const struct events *events)
{
	return events->cpus && events->features & AGENT_FEATURE_CONNECTOR;
}

/* Works where nothing is open. */
void events_close(struct events *events);

/*
 * CPUs that came online since. What ran on them until now was not seen:
 * it counts as one lost record.
 */
void events_open_new_cpus(struct events *events);

/*
 * Moves records into messages. False where OUTPUT had no room for all that was there at the call.
 * The kernel says that it dropped records with the next one that it does not drop; that it may have
 * is told at once, by a record of the same form that says 0.
 */
bool events_drain(struct events *events, struct output *output);

#endif
