// SPDX-License-Identifier: Apache-2.0
/*
 * Overwrite mode: how the writer moves the tail past whole records without
 * reading them back.
 *
 * The ring behind the tail has two halves. While a record starts in the first,
 * nothing is to be done. Before the first that starts in the second (and not
 * inside an open reservation, which may yet be given back) goes a mark; its
 * position is the next tail. When the ring is full the tail moves there, and
 * the next tail is unknown again.
 *
 * Invariants, at every instruction and so for a handler that comes there:
 * 1. All records before the next tail are finished, and none that is open or
 *    will be given back starts before it.
 * 2. data_floor is not behind data_head, and reaches the readers before a byte
 *    in front of it is overwritten.
 * 3. While the next tail is unknown, a mark's room is left behind every record.
 *    With records of at most half the ring less two marks there is then always
 *    room for a mark once the second half begins; and when the tail has moved,
 *    there is room for any record.
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

/* Nothing is open in STATE. Renews STATE, also where a handler came first. */
static void place_mark(struct ring *ring, uint64_t *state, uint64_t unknown)
{
	uint64_t position = ring_position_of(*state);
	/* Whatever commits meanwhile moves the position for good: so if STATE stands, the count
	 * does. */
	uint64_t count = local_load(&ring->header->written);

	if (!local_compare_exchange(&ring->writer.state, state,
				    *state + ring_state_bytes(RING_MARK_SIZE) + 1))
		return;
	local_store(&ring->writer.oldest_open, position);
	fill_mark(ring, position, count);
	local_fetch_add(&ring->writer.state, -1ull);
	/* Fails if a handler found the next tail unknown after that, and placed a mark of its own.
	 */
	local_compare_exchange(&ring->writer.next_tail, &unknown, position);
	*state = local_load(&ring->writer.state);
}

static void move_tail(struct ring *ring, uint64_t tail, uint64_t next_tail)
{
	local_raise(&ring->header->data_head, next_tail);
	local_raise(&ring->header->data_floor, next_tail);
	local_keep_order();
	/* Fails if a handler moved it already. Only now may anybody write before the new one. */
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
