/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer's side.
 * Invariants at every instruction, i.e. also for a handler:
 * 1. Records from oldest_open to the position are reserved; all before oldest_open are finished. An
 * open reservation starts at or after oldest_open, so discarding never moves the position below it.
 * 2. Only code that decrements the count of open reservations to zero, or reads it as zero, may
 * move data_head to the position in the same word: every record before it was finished.
 * 3. data_head only grows: code interrupted between 2 and the store finds the handler's larger
 * value and keeps it.
 */
#include <assert.h>
#include <unistd.h>

#include "shared/local_atomic.h"
#include "shared/ring_layout.h"

/* Lost records after which the writer checks for dead holders of the tail. */
#define LOSSES_PER_LOOK 64

#define CACHE_LINE        64
#define PREFETCH_DISTANCE 2048

static inline uint64_t load(const uint64_t *word)
{
	return local_load(word);
}

static void *drop(struct ring *ring)
{
	local_add(&ring->header->lost, 1);
	local_add(&ring->writer.lost_pending, 1);
	return NULL;
}

/* The space was reserved for losses, which a handler may have reported meanwhile. */
static void write_lost(struct ring *ring, uint64_t position)
{
	struct ring_record *record = ring_at(ring, position);
	struct ring_lost *lost = (struct ring_lost *)record->payload;

	lost->count = local_take(&ring->writer.lost_pending);
	record->size = RING_LOST_SIZE;
	record->type = lost->count ? RING_RECORD_LOST : RING_RECORD_PADDING;
	record->flags = 0;
}

/* Opens a reservation of NEED bytes if STATE is still current; else updates STATE. */
static inline bool open_reservation(struct ring *ring, uint64_t *state, uint64_t need)
{
	if (!local_compare_exchange(&ring->writer.state, state,
				    *state + ring_state_bytes(need) + 1))
		return false;
	if (!ring_open_of(*state))
		local_store(&ring->writer.oldest_open, ring_position_of(*state));
	return true;
}

static inline bool is_easy(const struct ring *ring, uint64_t state, uint64_t need)
{
	return ring_open_of(state) < RING_OPEN_MAX &&
	       ring_position_of(state) + need <= load(&ring->writer.limit);
}

/* Reserves NEED bytes. Fails only if there was no room after the newest STATE. */
static bool take_room(struct ring *ring, uint64_t *state, uint64_t need)
{
	for (;;) {
		uint64_t seen = *state = load(&ring->writer.state);

		if (is_easy(ring, *state, need) ||
		    (ring_open_of(*state) < RING_OPEN_MAX && ring->room(ring, state, need))) {
			if (open_reservation(ring, state, need))
				return true;
		} else if (load(&ring->writer.state) == seen) {
			return false;
		}
	}
}

/* Readers on other CPUs have copies of the cache lines that are written next, and getting them
 * exclusively takes time, so they are prefetched. A record of up to two lines prefetches one, as
 * the next record prefetches the next line; for a large record the hardware prefetcher works.
 */
static inline void prefetch(const struct ring_record *record, uint64_t size)
{
	const uint8_t *ahead = (const uint8_t *)record + PREFETCH_DISTANCE;

	prefetch_to_write(ahead);
	if (size > PREFETCH_DISTANCE)
		return;
	for (uint64_t done = CACHE_LINE; done + CACHE_LINE <= size; done += CACHE_LINE)
		prefetch_to_write(ahead + done);
}

static inline void *begin_record(struct ring *ring, uint64_t position, uint16_t type, uint64_t size)
{
	struct ring_record *record = ring_at(ring, position);

	record->size = size;
	record->type = type;
	record->flags = 0;
	if (size >= ring->prefetch)
		prefetch(record, size);
	return record->payload;
}

/* The slow path: pending losses, a check of the tail, or interference by a handler. */
static __attribute__((noinline)) void *reserve_slowly(struct ring *ring, uint16_t type,
						      size_t payload)
{
	uint64_t state, size, lost_size;

	if (payload > ring->payload_max)
		return drop(ring);
	size = ring_record_size(payload);
	lost_size = load(&ring->writer.lost_pending) ? RING_LOST_SIZE : 0;
	if (!take_room(ring, &state, lost_size + size))
		return drop(ring);
	local_add(&ring->header->opened, 1);
	if (lost_size)
		write_lost(ring, ring_position_of(state));
	return begin_record(ring, ring_position_of(state) + lost_size, type, size);
}

void *ring_reserve(struct ring *ring, uint16_t type, size_t payload)
{
	uint64_t state = load(&ring->writer.state), size = ring_record_size(payload);

	if (payload > ring->payload_max || load(&ring->writer.lost_pending) ||
	    !is_easy(ring, state, size) || !open_reservation(ring, &state, size))
		return reserve_slowly(ring, type, payload);
	local_add(&ring->header->opened, 1);
	return begin_record(ring, ring_position_of(state), type, size);
}

bool ring_has_room(struct ring *ring, size_t payload)
{
	uint64_t state = load(&ring->writer.state);
	uint64_t lost_size = load(&ring->writer.lost_pending) ? RING_LOST_SIZE : 0;
	uint64_t need = lost_size + ring_record_size(payload);

	assert(ring->mode == RING_MODE_CONSUMER);
	return payload <= ring->payload_max && ring_open_of(state) < RING_OPEN_MAX &&
	       (is_easy(ring, state, need) || ring->room(ring, &state, need));
}

void ring_publish(struct ring *ring)
{
	uint64_t oldest_open = load(&ring->writer.oldest_open);
	uint64_t state = load(&ring->writer.state);

	local_raise(&ring->header->data_head,
		    ring_open_of(state) ? oldest_open : ring_position_of(state));
}

/* STATE is the result of ending a reservation. */
static inline void publish_batch(struct ring *ring, uint64_t state)
{
	uint64_t *head = &ring->header->data_head, published = load(head),
		 position = ring_position_of(state);

	if (!ring_open_of(state) && position >= published + ring->batch)
		local_raise_from(head, published, position);
}

static inline void close_reservation(struct ring *ring)
{
	uint64_t state = local_fetch_add(&ring->writer.state, -1ull);

	assert(ring_open_of(state));
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
static uint64_t bytes_behind(const struct ring *ring, const struct ring_record *record,
			     uint64_t state)
{
	uint64_t distance =
		(ring_position_of(state) - (uint64_t)((const uint8_t *)record - ring->data)) &
		ring->mask;

	return distance ? distance : ring->size;
}

static bool give_back(struct ring *ring, const struct ring_record *record)
{
	uint64_t state = load(&ring->writer.state);
	uint64_t size = record->size;

	while (bytes_behind(ring, record, state) == size) {
		uint64_t next = state - ring_state_bytes(size) - 1;

		assert(ring_open_of(state));
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

/* Writes a LOST record for losses after the last record. */
static void report_losses(struct ring *ring)
{
	uint64_t state;

	if (!load(&ring->writer.lost_pending) || !take_room(ring, &state, RING_LOST_SIZE))
		return;
	write_lost(ring, ring_position_of(state));
	close_reservation(ring);
}

/* Bytes, published or not. */
static uint64_t bytes_since_wake(const struct ring *ring)
{
	return ring_position_of(load(&ring->writer.state)) - load(&ring->writer.woken);
}

/* Checking for dead holders needs system calls, so only after some losses. */
static bool look_is_due(const struct ring *ring)
{
	return load(&ring->header->lost) - load(&ring->writer.looked) >= LOSSES_PER_LOOK;
}

bool ring_wake_due(struct ring *ring, uint64_t now)
{
	uint64_t bytes = bytes_since_wake(ring);

	if (look_is_due(ring))
		return true;
	if (!bytes)
		return false;
	if (!load(&ring->writer.new_since))
		local_store(&ring->writer.new_since, now);
	return bytes >= ring->watermark ||
	       load(&ring->header->written) - load(&ring->writer.woken_count) >=
		       ring->watermark_records ||
	       now - load(&ring->writer.new_since) >= ring->latency;
}

static void look_for_dead(struct ring *ring)
{
	uint64_t lost = load(&ring->header->lost);

	if (lost == load(&ring->writer.looked))
		return;
	local_store(&ring->writer.looked, lost);
	if (ring->mode == RING_MODE_CONSUMER)
		ring_release_dead(ring);
}

void ring_flush(struct ring *ring)
{
	uint64_t one = 1, woken = load(&ring->writer.woken);

	look_for_dead(ring);
	report_losses(ring);
	ring_publish(ring);
	local_store(&ring->writer.new_since, 0);
	local_store(&ring->writer.woken_count, load(&ring->header->written));
	local_store(&ring->writer.woken, load(&ring->header->data_head));
	/* Fails only if the eventfd's count is at its limit; then a wake-up is pending anyway. */
	if (load(&ring->writer.woken) == woken || write(ring->event_fd, &one, sizeof(one)) < 0)
		return;
}
