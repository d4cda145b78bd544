/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts the guest's records to host time and writes them to a ring. Records wait in a queue
 * until a later clock exchange bounds their time (agent_clock.h) and the ring has room. Records
 * whose time cannot be determined are not guessed: they are reported as a loss (SIDEBAND_LOST), and
 * the session has to be restarted. Agent thread only.
 */
#ifndef KVMSCOPE_AGENT_AGENT_TIMELINE_H
#define KVMSCOPE_AGENT_AGENT_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/ring.h"
#include "shared/sideband_record.h"
#include "vmm/agent/agent_clock.h"

/* Bytes that the queue may have: several times what an agent can send before it reads a message
 * (its buffer of 512 KiB). */
#define AGENT_QUEUE_MAX (4ul << 20)

/* Records in the order of their arrival. Zeroed: empty. */
struct agent_queue {
	uint8_t *bytes; /* owned */
	size_t begin, end, capacity;
	uint64_t latest; /* latest guest time in the queue; 0: empty */
};

/* Appends a copy of RECORD with its guest time. False if the queue is full or without memory. */
bool agent_queue_add(struct agent_queue *queue, uint64_t guest_time, const struct sideband *record);

/* The first record, or NULL. The caller may change it, except its size. Valid until it is removed
 * or another record is added. */
struct sideband *agent_queue_first(const struct agent_queue *queue, uint64_t *guest_time);
/* Removes the first record. */
void agent_queue_pop(struct agent_queue *queue);
/* Removes all records and frees the memory. */
void agent_queue_clear(struct agent_queue *queue);

/* Zeroed except for the ring: before the first session. */
struct agent_timeline {
	struct ring *ring; /* no other writer */
	uint64_t added;    /* records, in all sessions */
	/* Of this session. */
	struct agent_clock clock; /* the owner adds exchanges */
	bool broken;              /* a record's time cannot be determined: restart the session */
	struct agent_queue queue; /* records that wait for an exchange */
	uint64_t emitted;         /* ns, latest time written to the ring; 0: nothing was */
	/* Records that were dropped because their time is unknown. */
	struct {
		uint64_t events;
		uint64_t lost;  /* sum of the losses that the guest reported */
		uint64_t since; /* guest time of the earliest; UINT64_MAX: none */
	} dropped;
	/* Loss of earlier sessions that waits for room in the ring; its size is 0 if there is none.
	 */
	struct sideband_lost loss;
};

/* Starts a session; an earlier one must have ended. */
void agent_timeline_begin(struct agent_timeline *timeline);

/* Queues a copy of RECORD, whose times are the guest's, then calls agent_timeline_emit(). */
void agent_timeline_add(struct agent_timeline *timeline, struct sideband *record,
			uint64_t guest_time);

/* Writes the records that the clock covers to the ring, as far as there is room. */
void agent_timeline_emit(struct agent_timeline *timeline);

/* True if many records wait for a clock exchange. */
bool agent_timeline_needs_exchange(const struct agent_timeline *timeline);

/* Writes a pending loss to the ring. False if there is no room. */
bool agent_timeline_emit_loss(struct agent_timeline *timeline);

/*
 * Ends the session: no more exchanges will come, and the latest message arrived at RECEIVED (ns).
 * Reports a loss, because everything reported so far may change unnoticed from now on. Returns the
 * number of events that were dropped without a time.
 */
uint64_t agent_timeline_end(struct agent_timeline *timeline, uint64_t received);

/* Like agent_timeline_end() for the last session: reports a loss only if records are dropped. */
uint64_t agent_timeline_stop(struct agent_timeline *timeline, uint64_t received);

void agent_timeline_free(struct agent_timeline *timeline);

#endif
