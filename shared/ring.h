/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock-free ring per vCPU: a single writer thread (which may be
 * interrupted by its own signal handler), one memfd that readers map.
 */
#ifndef KVMSCOPE_SHARED_RING_H
#define KVMSCOPE_SHARED_RING_H

#include <stddef.h>
#include <stdint.h>

#define RING_SIZE_MIN (64ul << 10)
#define RING_SIZE_MAX (1ul << 30)

/* Types below 8 are the ring's own; readers see LOST, never PADDING. */
enum ring_record_type {
	RING_RECORD_PADDING = 0,
	RING_RECORD_LOST = 1,
};

/* Precedes each record's payload; size counts header and payload, multiple of 8. */
struct ring_record {
	uint32_t size;
	uint16_t type;
	uint16_t flags;
	uint8_t payload[];
};

/* Payload of RING_RECORD_LOST: so many records were dropped just before here. */
struct ring_lost {
	uint64_t count;
};

struct ring;

struct ring_statistics {
	uint64_t written;  /* records committed */
	uint64_t lost;	   /* records dropped because the ring was full or they were too large */
	uint64_t discarded; /* reservations given back */
	uint64_t unread;   /* records between the reader and the head */
};

/*
 * Makes a ring with SIZE bytes of data (a power of two, RING_SIZE_MIN to
 * RING_SIZE_MAX) in consumer mode. -EINVAL for a bad size, -ENOMEM and the
 * errors of memfd_create() and mmap() otherwise. Any thread.
 */
int ring_create(struct ring **ring, size_t size);
void ring_destroy(struct ring *ring);

/* The memfd, for others to map; owned by the ring. The eventfd that is signalled at the watermark. */
int ring_memory_fd(const struct ring *ring);
int ring_event_fd(const struct ring *ring);

/*
 * Reserves a record of TYPE with PAYLOAD bytes of payload; returns the
 * payload, 8-byte aligned, to be filled and given to ring_commit() or
 * ring_discard() on the same thread. NULL if the ring is full (the record is
 * then counted as lost) or the record is larger than the ring can hold.
 * Writer thread only, its signal handlers included. No lock, no system call.
 */
void *ring_reserve(struct ring *ring, uint16_t type, size_t payload);

/* Finish a reservation; NULL is a defined no-op. Writer thread only. */
void ring_commit(struct ring *ring, void *payload);
void ring_discard(struct ring *ring, void *payload);

/*
 * Publishes everything committed so far and wakes readers. Writer thread
 * only, outside of signal handlers; makes a system call if readers wait.
 */
void ring_flush(struct ring *ring);

/*
 * The next unread record or NULL. The record stays valid until
 * ring_read_done(). Reader thread only (one reader).
 */
const struct ring_record *ring_read(struct ring *ring);
void ring_read_done(struct ring *ring);

/* Any thread. Counts are exact once the writer is quiet. */
void ring_statistics(const struct ring *ring, struct ring_statistics *statistics);

#endif
