/* SPDX-License-Identifier: Apache-2.0 */
/* Consumer mode: the tail is the place of the slowest holder, i.e. consumer whose bit is set in the
 * header. The writer reads the holders only when it has used the space that it knows of. It then
 * writes its request (wanted_floor), reads the holders again, and takes at most what the slowest of
 * them leaves. A consumer that attaches meanwhile first sets its line and bit and then reads the
 * request: so either the writer sees the line, or the consumer sees that it has to start later
 * (ring_holders.c). Neither waits for the other. If both happen, the consumer is before the request
 * and the writer respects it; later consumers cannot start there. Invariants at every instruction:
 * 1. data_floor is at most wanted_floor. Both only grow.
 * 2. A holder is at or after data_floor; a consumer that is still attaching, or died meanwhile, may
 * be before it. At least one holder, or the stored tail, is at or after wanted_floor.
 * 3. Nothing after data_floor is overwritten, and data_floor is visible to readers before a byte
 * before it is overwritten.
 */
#include "shared/ring_layout.h"

/* Give up after a consumer's line changed this often while it was read. */
#define TRIES 64

#define NOBODY UINT64_MAX

void ring_consumer_set(struct ring_consumer *consumer, const struct ring_place *place)
{
	uint64_t next = local_load(&consumer->sequence) + 1;

	/* A reader that sees a byte of the new place also sees the sequence that no longer selects
	 * it. */
	local_keep_order();
	local_store(&consumer->places[next % 2].position, place->position);
	local_store(&consumer->places[next % 2].before, place->before);
	store_release(&consumer->sequence, next);
}

bool ring_consumer_place(const struct ring_consumer *consumer, struct ring_place *place)
{
	for (int try = 0; try < TRIES; try++) {
		uint64_t sequence = load_acquire(&consumer->sequence);

		place->position = load_acquire(&consumer->places[sequence % 2].position) & ~7ull;
		place->before = load_acquire(&consumer->places[sequence % 2].before);
		if (load_acquire(&consumer->sequence) == sequence)
			return true;
	}
	return false;
}

/* The slowest of HOLDERS at or after FLOOR; its position is NOBODY if there is none. */
static bool slowest(const struct ring *ring, uint64_t holders, uint64_t floor,
		    struct ring_place *result)
{
	result->position = NOBODY;
	for (unsigned int i = 0; i < RING_CONSUMERS; i++) {
		struct ring_place place;

		if (!(holders >> i & 1))
			continue;
		if (!ring_consumer_place(&ring->header->consumers[i], &place))
			return false;
		if (place.position >= floor && place.position < result->position)
			*result = place;
	}
	return true;
}

bool ring_tail(const struct ring *ring, uint64_t holders, uint64_t floor, struct ring_place *place)
{
	if (!slowest(ring, holders, floor, place))
		return false;
	if (place->position != NOBODY)
		return true;
	return ring_consumer_place(&ring->header->consumers[RING_CONSUMERS], place);
}

bool ring_consumer_room(struct ring *ring, uint64_t *state, uint64_t need)
{
	struct ring_header *header = ring->header;
	uint64_t floor = ring_floor(ring), position = ring_position_of(*state);
	struct ring_place wanted, allowed;

	if (!slowest(ring, load_acquire(&header->holders), floor, &wanted) ||
	    wanted.position == NOBODY)
		return false;
	if (position - wanted.position > ring->size - need)
		return false;
	local_raise(&header->wanted_floor, wanted.position);
	full_barrier();
	if (!slowest(ring, load_acquire(&header->holders), floor, &allowed))
		return false;
	if (allowed.position > wanted.position)
		allowed = wanted;
	local_raise(&header->data_floor, allowed.position);
	local_keep_order();
	local_raise(&ring->writer.limit, allowed.position + ring->size);
	return position + need <= local_load(&ring->writer.limit);
}
