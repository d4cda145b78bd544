/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of ring.h: the layout of the memfd, and the private state of both sides. */
#ifndef KVMSCOPE_SHARED_RING_LAYOUT_H
#define KVMSCOPE_SHARED_RING_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "shared/local_atomic.h"
#include "shared/ring.h"

#define RING_MAGIC       0x474e495250435653ull /* "SVCPRING" */
#define RING_VERSION     3u
#define RING_DATA_OFFSET 4096u

/* Consumers that may hold the tail at the same time. */
#define RING_CONSUMERS 16

/* An internal record: the number of records committed before it. */
enum { RING_RECORD_MARK = 2 };

struct ring_mark {
	uint64_t count;
};

#define RING_LOST_SIZE (sizeof(struct ring_record) + sizeof(struct ring_lost))
#define RING_MARK_SIZE (sizeof(struct ring_record) + sizeof(struct ring_mark))

/* A position at which a record begins, and how many were committed before it since the ring was
 * made. */
struct ring_place {
	uint64_t position;
	uint64_t before;
};

/* The line of a consumer that holds the tail. The lowest bit of SEQUENCE selects the place of the
 * first record that it still needs. That place is always complete, even if its owner dies; the
 * other one is being written.
 */
struct ring_consumer {
	uint64_t sequence;
	struct ring_place places[2];
	uint64_t pad[3];
};

/*
 * The first page of the memfd; docs/ring-format.md. Grows only at the end of
 * each of its lines, which keep the words of one side off those of the other.
 */
struct ring_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_size; /* size of this structure in its creator, bytes */
	uint64_t data_offset;
	uint64_t data_size;
	uint32_t mode;  /* enum ring_mode */
	uint32_t clock; /* clockid_t of the times in the records */
	uint32_t writer_pid;
	uint32_t reserved;
	uint64_t pad0[2];
	/* Position after the last visible record. Written by the writer, once per batch. */
	uint64_t data_head;
	uint64_t pad1[7];
	/* Counts of records. Written by the writer with each record. */
	uint64_t written;
	uint64_t lost;
	uint64_t discarded;
	uint64_t opened; /* reservations that succeeded */
	uint64_t pad2[4];
	/* Position of a record; everything before it may be overwritten. Written by the writer,
	 * seldom; read with each record. */
	uint64_t data_floor;
	/* Consumer mode: the floor that the writer requests, not before data_floor. Written by the
	 * writer. */
	uint64_t wanted_floor;
	uint64_t pad3[6];
	/* One bit for each consumer that holds the tail. Changed under the lock of ring_holders.c.
	 */
	uint64_t holders;
	uint64_t pad4[7];
	/* Each written by its owner; the last one keeps the tail while there is no holder. */
	struct ring_consumer consumers[RING_CONSUMERS + 1];
};

_Static_assert(sizeof(struct ring_header) == 320 + 64 * (RING_CONSUMERS + 1) &&
		       sizeof(struct ring_header) <= RING_DATA_OFFSET &&
		       offsetof(struct ring_header, data_head) == 64 &&
		       offsetof(struct ring_header, written) == 128 &&
		       offsetof(struct ring_header, data_floor) == 192 &&
		       offsetof(struct ring_header, holders) == 256 &&
		       offsetof(struct ring_header, consumers) == 320,
	       "docs/ring-format.md");

/* Positions are bytes since the ring's creation and never wrap; their data is at data + (position &
 * mask). The writer's position and its number of open reservations share one word, so that one
 * instruction updates both: position / 8 above, the number in the low RING_OPEN_BITS.
 */
#define RING_OPEN_BITS 8
#define RING_OPEN_MASK ((1ull << RING_OPEN_BITS) - 1)

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): each side has cache lines of its own */
struct ring {
	/* Constant after creation. */
	struct ring_header *header;
	uint8_t *data; /* size bytes, and the same again */
	bool (*room)(struct ring *ring, uint64_t *state, uint64_t need); /* the mode's own, below */
	uint64_t size;
	uint64_t mask;
	uint64_t batch;
	uint64_t watermark;
	uint64_t watermark_records;
	uint64_t latency;
	uint64_t payload_max;
	uint64_t prefetch; /* records of at least this size prefetch the memory of later ones */
	enum ring_mode mode;
	int memory_fd;
	int event_fd;

	/* The writer's; private, so that another process cannot corrupt it. */
	struct {
		uint64_t state;        /* position and open reservations */
		uint64_t oldest_open;  /* all before it is finished; may lag */
		uint64_t limit;        /* records that end before it need no check of the tail */
		uint64_t tail;         /* overwrite mode: all before it may be overwritten */
		uint64_t lost_pending; /* dropped, no LOST record yet */
		uint64_t woken;        /* position at the last wake-up */
		uint64_t woken_count;  /* records committed by then */
		uint64_t new_since; /* time of the first record since the last wake-up; 0: none */
		uint64_t looked;    /* lost records at the last check for dead holders */
		uint64_t next_tail; /* overwrite mode: the next tail; at most TAIL while unknown */
	} writer __attribute__((aligned(64)));

	/* The reader's. */
	struct {
		struct ring_consumer *consumer; /* holds the tail; NULL if it may be overrun */
		uint64_t position;
		uint64_t head;     /* the newest data_head that it has seen */
		uint64_t before;   /* records before the position at which it began */
		uint64_t read;     /* records before the position since the ring was made */
		uint64_t released; /* with the tail: the position up to which it was released */
		uint64_t overrun;  /* of them, overwritten before they were read */
		uint64_t broken;
		bool resync; /* READ is outdated until the next mark */
		struct ring_record *copy;
		size_t copy_size;
	} reader __attribute__((aligned(64)));
};

/* Makes room for a record of NEED bytes (at most the ring's size) after STATE that does not end
 * before the limit; the function depends on the mode. May update STATE. False if there is no room.
 * Consumer mode: reads the holders' positions (ring_tail.c). Overwrite mode: moves the tail until
 * there is room; open reservations cannot be passed (ring_overwrite.c).
 */
bool ring_consumer_room(struct ring *ring, uint64_t *state, uint64_t need);
bool ring_overwrite_room(struct ring *ring, uint64_t *state, uint64_t need);

/* Called by the line's owner only. ring_tail.c. */
void ring_consumer_set(struct ring_consumer *consumer, const struct ring_place *place);
/* Any thread. False if the owner changed it too often meanwhile. ring_tail.c. */
bool ring_consumer_place(const struct ring_consumer *consumer, struct ring_place *place);

/* The slowest of those HOLDERS (bits as in the header) that are at or after FLOOR, or the stored
 * tail if there are none. False if they moved too often meanwhile. Any thread. ring_tail.c.
 */
bool ring_tail(const struct ring *ring, uint64_t holders, uint64_t floor, struct ring_place *place);

/* The place of the oldest readable record. False if the writer moved too often meanwhile, or the
 * memory is invalid. Any thread. ring_read.c.
 */
bool ring_oldest(const struct ring *ring, struct ring_place *place);

/* Makes the ring's reader a holder of the tail, and releases the tail. Errors as in
 * ring_attach_with(). ring_holders.c. */
int ring_hold(struct ring *ring);
void ring_release(struct ring *ring);

/* Releases the tail of dead holders. Writer thread; system calls, but does not wait.
 * ring_holders.c. */
void ring_release_dead(struct ring *ring);

/* A record's first word. */
struct ring_record_head {
	uint32_t size;
	uint16_t type;
	uint16_t flags;
} __attribute__((aligned(8)));

/* Copies BYTES, a multiple of 8, that the writer may be overwriting; the caller checks afterwards.
 */
void ring_copy_racing(void *to, const void *from, size_t bytes);

/* True if HEAD is valid for a record within AVAILABLE bytes. */
bool ring_record_is_possible(const struct ring *ring, const struct ring_record_head *head,
			     uint64_t available);

static inline uint64_t ring_floor(const struct ring *ring)
{
	return load_acquire(&ring->header->data_floor) & ~7ull;
}

static inline uint64_t ring_position_of(uint64_t state)
{
	return state >> RING_OPEN_BITS << 3;
}

static inline uint64_t ring_open_of(uint64_t state)
{
	return state & RING_OPEN_MASK;
}

/* BYTES, a multiple of 8, in the units of the state. */
static inline uint64_t ring_state_bytes(uint64_t bytes)
{
	return bytes >> 3 << RING_OPEN_BITS;
}

static inline struct ring_record *ring_at(const struct ring *ring, uint64_t position)
{
	return (struct ring_record *)(ring->data + (position & ring->mask));
}

static inline uint64_t ring_record_size(uint64_t payload)
{
	return (sizeof(struct ring_record) + payload + 7) & ~7ull;
}

#endif
