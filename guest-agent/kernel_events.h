/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the guest's kernel: one dummy perf event per CPU, which counts nothing, and whose ring
 * gets a record for each exec, fork, exit and code mapping (perf_event_open(2)). If the kernel does
 * not allow that, its process connector replaces the rings (connector.h), if available. When a ring
 * is full, the kernel drops records and reports their number in another record. The agent never
 * blocks the guest: if it is slow, records are dropped.
 */
#ifndef KVMSCOPE_GUEST_AGENT_KERNEL_EVENTS_H
#define KVMSCOPE_GUEST_AGENT_KERNEL_EVENTS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-agent/connector.h"
#include "guest-agent/send_queue.h"

#define EVENTS_CPUS_MAX 512

struct perf_event_mmap_page;

struct events {
	struct connector connector;         /* if open, it is slot 0 and there is no other */
	unsigned int cpus;                  /* slots in use; 0: no events */
	struct pollfd fds[EVENTS_CPUS_MAX]; /* per CPU; fd -1: offline */
	struct perf_event_mmap_page *pages[EVENTS_CPUS_MAX];
	bool full[EVENTS_CPUS_MAX];    /* its ring was full, which is not reported yet */
	bool emptied[EVENTS_CPUS_MAX]; /* the latest report was that it was emptied */
	unsigned int features;         /* enum agent_features of the kernel */
	size_t data_size;              /* bytes of each ring, a power of two */
	uint64_t lost;                 /* records that the kernel dropped */
	bool gap;      /* records were dropped, or may have been, since the owner cleared this */
	pid_t watched; /* a record of this process, or a gap, sets TOUCHED */
	bool touched;
};

/* Opens the events of all CPUs. If the kernel does not allow it, returns the negative errno of
 * perf_event_open(2); then the connector is open, or nothing (no CPUs).
 */
int events_open(struct events *events);

static inline bool events_by_connector(const struct events *events)
{
	return events->cpus && events->features & AGENT_FEATURE_CONNECTOR;
}

/* A no-op if nothing is open. */
void events_close(struct events *events);

/* Opens the events of CPUs that came online. Their earlier events count as one lost record.
 */
void events_open_new_cpus(struct events *events);

/* Moves records into messages. False if OUTPUT had no room for all of them. The kernel reports
 * dropped records only with the next record; after draining a full ring this adds a LOST record
 * with count 0 at once, which means that records may have been dropped.
 */
bool events_drain(struct events *events, struct output *output);

#endif
