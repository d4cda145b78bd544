// SPDX-License-Identifier: Apache-2.0
/*
 * The writer's side.
 *
 * Invariants, at every instruction and so for a handler that comes there:
 * 1. Records from oldest_open to the position are reserved; all before
 *    oldest_open are finished. While a reservation is open its start is at or
 *    behind oldest_open, so that giving space back never goes below it.
 * 2. Only the one who takes the count of open reservations to zero, or who
 *    sees it at zero, may move data_head up to the position of that same
 *    word: every record before that position was finished then.
 * 3. data_head only grows: whoever was interrupted between 2 and the store
 *    finds the handler's larger value there and leaves it.
 */
#include <assert.h>
#include <unistd.h>

#include "shared/local_atomic.h"
#include "shared/ring_layout.h"

#define LOST_SIZE (sizeof(struct ring_record) + sizeof(struct ring_lost))

static inline uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline uint64_t position_of(uint64_t state)
{
	return state >> RING_OPEN_BITS << 3;
}

static inline uint64_t open_of(uint64_t state)
{
	return state & RING_OPEN_MASK;
}

/* BYTES, a multiple of 8, as they are counted in the state. */
static inline uint64_t state_bytes(uint64_t bytes)
{
	return bytes >> 3 << RING_OPEN_BITS;
}

/* Is there room for NEED bytes (at most the ring's size) from POSITION on? */
static bool has_room(struct ring *ring, uint64_t position, uint64_t need)
{
	uint64_t tail;

	if (position - load(&ring->writer.tail) <= ring->size - need)
		return true;
	tail = __atomic_load_n(&ring->header->data_tail, __ATOMIC_ACQUIRE);
	if (position - tail > ring->size - need)
		return false;
	__atomic_store_n(&ring->writer.tail, tail, __ATOMIC_RELAXED);
	return true;
}

static void *drop(struct ring *ring)
{
	local_add(&ring->header->lost, 1);
	local_add(&ring->writer.lost_pending, 1);
	return NULL;
}

/* The space was reserved for losses; a handler in between may have told of them already. */
static void write_lost(struct ring *ring, uint64_t position)
{
	struct ring_record *record = ring_at(ring, position);
	struct ring_lost *lost = (struct ring_lost *)record->payload;

	lost->count = local_take(&ring->writer.lost_pending);
	record->size = LOST_SIZE;
	record->type = lost->count ? RING_RECORD_LOST : RING_RECORD_PADDING;
	record->flags = 0;
}

/* Takes NEED bytes and opens a reservation. */
static inline bool take_room(struct ring *ring, uint64_t need, uint64_t *state)
{
	while (open_of(*state) < RING_OPEN_MAX && has_room(ring, position_of(*state), need)) {
		if (!local_compare_exchange(&ring->writer.state, state, *state + state_bytes(need) + 1))
			continue;
		if (!open_of(*state))
			__atomic_store_n(&ring->writer.oldest_open, position_of(*state), __ATOMIC_RELAXED);
		return true;
	}
	return false;
}

void *ring_reserve(struct ring *ring, uint16_t type, size_t payload)
{
	struct ring_record *record;
	uint64_t state, start, size, lost_size;

	if (payload > ring->payload_max)
		return drop(ring);
	size = ring_record_size(payload);
	lost_size = load(&ring->writer.lost_pending) ? LOST_SIZE : 0;
	state = load(&ring->writer.state);
	if (!take_room(ring, lost_size + size, &state))
		return drop(ring);
	start = position_of(state);
	if (lost_size)
		write_lost(ring, start);
	record = ring_at(ring, start + lost_size);
	record->size = size;
	record->type = type;
	record->flags = 0;
	return record->payload;
}

/* Moves data_head up to POSITION, unless a handler got further meanwhile. */
static void publish_up_to(struct ring *ring, uint64_t position)
{
	uint64_t head = load(&ring->header->data_head);

	while (head < position && !local_compare_exchange(&ring->header->data_head, &head, position))
		;
}

void ring_publish(struct ring *ring)
{
	uint64_t oldest_open = load(&ring->writer.oldest_open);
	uint64_t state = load(&ring->writer.state);

	publish_up_to(ring, open_of(state) ? oldest_open : position_of(state));
}

/* STATE is what the end of a reservation left. */
static inline void publish_batch(struct ring *ring, uint64_t state)
{
	if (open_of(state))
		return;
	if (position_of(state) - load(&ring->header->data_head) >= ring->batch)
		publish_up_to(ring, position_of(state));
}

static inline void close_reservation(struct ring *ring)
{
	uint64_t state = local_fetch_add(&ring->writer.state, -1ull);

	assert(open_of(state));
	publish_batch(ring, state - 1);
}

void ring_commit(struct ring *ring, void *payload)
{
	if (!payload)
		return;
	local_add(&ring->header->written, 1);
	close_reservation(ring);
}

/* Bytes from the start of RECORD to the writer's position: its size, if it is the newest. */
static uint64_t bytes_behind(const struct ring *ring, const struct ring_record *record, uint64_t state)
{
	uint64_t distance =
		(position_of(state) - (uint64_t)((const uint8_t *)record - ring->data)) & ring->mask;

	return distance ? distance : ring->size;
}

static bool give_back(struct ring *ring, const struct ring_record *record)
{
	uint64_t state = load(&ring->writer.state);
	uint64_t size = record->size;

	while (bytes_behind(ring, record, state) == size) {
		uint64_t next = state - state_bytes(size) - 1;

		assert(open_of(state));
		if (!local_compare_exchange(&ring->writer.state, &state, next))
			continue;
		publish_batch(ring, next);
		return true;
	}
	return false;
}

void ring_discard(struct ring *ring, void *payload)
{
	struct ring_record *record;

	if (!payload)
		return;
	record = (struct ring_record *)((uint8_t *)payload - sizeof(*record));
	local_add(&ring->header->discarded, 1);
	if (give_back(ring, record))
		return;
	record->type = RING_RECORD_PADDING;
	close_reservation(ring);
}

/* A LOST record of its own for losses that no record followed. */
static void report_losses(struct ring *ring)
{
	uint64_t state = load(&ring->writer.state);

	if (!load(&ring->writer.lost_pending) || !take_room(ring, LOST_SIZE, &state))
		return;
	write_lost(ring, position_of(state));
	close_reservation(ring);
}

bool ring_wake_due(const struct ring *ring)
{
	return load(&ring->header->data_head) - load(&ring->writer.woken) >= ring->watermark;
}

void ring_flush(struct ring *ring)
{
	uint64_t head, one = 1;

	report_losses(ring);
	ring_publish(ring);
	head = load(&ring->header->data_head);
	if (head == load(&ring->writer.woken))
		return;
	__atomic_store_n(&ring->writer.woken, head, __ATOMIC_RELAXED);
	/* Fails only if the count is at its limit: then the reader has a wake-up to come anyway. */
	if (write(ring->event_fd, &one, sizeof(one)) < 0)
		return;
}
