/* SPDX-License-Identifier: Apache-2.0 */
/* The ring from the inside: what lies in the memfd, and what its two sides keep for themselves. */
#ifndef KVMSCOPE_SHARED_RING_LAYOUT_H
#define KVMSCOPE_SHARED_RING_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "shared/ring.h"

#define RING_MAGIC       0x474e495250435653ull /* "SVCPRING" */
#define RING_VERSION     1u
#define RING_DATA_OFFSET 4096u

enum ring_mode {
	RING_MODE_CONSUMER = 0, /* full: new records are dropped */
};

/*
 * The first page of the memfd; docs/ring-format.md. Grows only at the end of
 * each of its lines, which keep the words of one side off those of the other.
 */
struct ring_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_size; /* bytes of this structure that its maker knew */
	uint64_t data_offset;
	uint64_t data_size;
	uint32_t mode;  /* enum ring_mode */
	uint32_t clock; /* clockid_t of the times in the records */
	uint32_t writer_pid;
	uint32_t reserved;
	uint64_t pad0[2];
	/* Position behind the last record that readers may see. By the writer. */
	uint64_t data_head;
	uint64_t pad1[7];
	/* Counts of records. By the writer. */
	uint64_t written;
	uint64_t lost;
	uint64_t discarded;
	uint64_t pad2[5];
	/* Position of the first record whose space the writer may not take. By the reader. */
	uint64_t data_tail;
	uint64_t read; /* records read, LOST and padding not counted */
	uint64_t pad3[6];
};

_Static_assert(sizeof(struct ring_header) == 256 && offsetof(struct ring_header, data_head) == 64 &&
		       offsetof(struct ring_header, written) == 128 &&
		       offsetof(struct ring_header, data_tail) == 192,
	       "docs/ring-format.md");

/*
 * Positions are bytes since the ring was made and never wrap; what lies at
 * one is found at data + (position & mask). The writer's position and its
 * number of open reservations share one word, so that one instruction moves
 * both: position / 8 above, the number in the low RING_OPEN_BITS.
 */
#define RING_OPEN_BITS 8
#define RING_OPEN_MASK ((1ull << RING_OPEN_BITS) - 1)

struct ring {
	/* Fixed once made. */
	struct ring_header *header;
	uint8_t *data; /* size bytes, and the same again */
	uint64_t size;
	uint64_t mask;
	uint64_t batch;
	uint64_t watermark;
	uint64_t payload_max;
	int memory_fd;
	int event_fd;

	/* The writer's; private, so that another process can not mislead it. */
	struct {
		uint64_t state;        /* position and open reservations */
		uint64_t oldest_open;  /* all before it is finished; may lag */
		uint64_t tail;         /* data_tail as last seen */
		uint64_t lost_pending; /* dropped, no LOST record yet */
		uint64_t woken;        /* data_head at the last wake-up */
	} writer __attribute__((aligned(64)));

	/* The reader's. */
	struct {
		uint64_t position;
		uint64_t read;
		uint64_t broken;
		struct ring_record *copy;
		size_t copy_size;
	} reader __attribute__((aligned(64)));
};

static inline struct ring_record *ring_at(const struct ring *ring, uint64_t position)
{
	return (struct ring_record *)(ring->data + (position & ring->mask));
}

static inline uint64_t ring_record_size(uint64_t payload)
{
	return (sizeof(struct ring_record) + payload + 7) & ~7ull;
}

#endif
