/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overwrite mode: how the writer moves the tail past whole records without
 * reading them back.
 * The ring after the tail has two halves. Records in the first half need nothing. Before the first
 * record in the second half a mark is written, but not inside an open reservation, which may still
 * be discarded; the mark's position is the next tail. When the ring is full the tail moves there,
 * and the next tail is unknown again. Invariants at every instruction, i.e. also for a handler:
 * 1. All records before the next tail are finished; no open or later discarded one starts before
 * it.
 * 2. data_floor is at most data_head, and is visible to readers before a byte before it is
 * overwritten.
 * 3. While the next tail is unknown, room for a mark is left after every record. As records have at
 * most half the ring minus two marks, there is always room for a mark when the second half begins;
 * and after the tail has moved, there is room for any record.
 */
#include "shared/local_atomic.h"
#include "shared/ring_layout.h"

static void fill_mark(struct ring *ring, uint64_t position, uint64_t count)
{
	struct ring_record *record = ring_at(ring, position);
	struct ring_mark *mark = (struct ring_mark *)record->payload;

	record->size = RING_MARK_SIZE;
	record->type = RING_RECORD_MARK;
	record->flags = 0;
	mark->count = count;
}

/* STATE has no open reservation. Updates STATE, also if a handler was faster. */
static void place_mark(struct ring *ring, uint64_t *state, uint64_t unknown)
{
	uint64_t position = ring_position_of(*state);
	/* A commit meanwhile would have moved the position: if STATE is unchanged, so is the count.
	 */
	uint64_t count = local_load(&ring->header->written);

	if (!local_compare_exchange(&ring->writer.state, state,
				    *state + ring_state_bytes(RING_MARK_SIZE) + 1))
		return;
	local_store(&ring->writer.oldest_open, position);
	fill_mark(ring, position, count);
	local_fetch_add(&ring->writer.state, -1ull);
	/* Fails if a handler found the next tail unknown after that and wrote its own mark. */
	local_compare_exchange(&ring->writer.next_tail, &unknown, position);
	*state = local_load(&ring->writer.state);
}

static void move_tail(struct ring *ring, uint64_t tail, uint64_t next_tail)
{
	local_raise(&ring->header->data_head, next_tail);
	local_raise(&ring->header->data_floor, next_tail);
	local_keep_order();
	/* Fails if a handler moved it already. Only now may records before the new tail be
	 * overwritten. */
	local_compare_exchange(&ring->writer.tail, &tail, next_tail);
}

bool ring_overwrite_room(struct ring *ring, uint64_t *state, uint64_t need)
{
	for (;;) {
		uint64_t tail = local_load(&ring->writer.tail);
		uint64_t next_tail = local_load(&ring->writer.next_tail);
		uint64_t position = ring_position_of(*state);

		if (next_tail > tail) {
			if (position + need <= tail + ring->size) {
				local_raise(&ring->writer.limit, tail + ring->size);
				return true;
			}
			move_tail(ring, tail, next_tail);
		} else if (position < tail + ring->size / 2 || ring_open_of(*state)) {
			local_raise(&ring->writer.limit, tail + ring->size / 2);
			return position + need <= tail + ring->size - RING_MARK_SIZE;
		} else {
			place_mark(ring, state, next_tail);
		}
	}
}
