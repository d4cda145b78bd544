// SPDX-License-Identifier: Apache-2.0
/*
 * Consumer mode: the tail is where the slowest of the holders stands, those
 * consumers whose bit is set in the header.
 *
 * The writer looks only when it has used the space that it knows of. Then it
 * says what it wants, looks once more, and takes no more than the slowest of
 * that second look leaves. A consumer that comes to hold the tail meanwhile
 * sets its line and its bit first and looks afterwards what is wanted: so the
 * writer sees the line, or the consumer sees that it must begin further on
 * (ring_holders.c). Neither waits for the other. If both see it, it stands before
 * what is wanted, and is waited for; the next one to come can not begin there.
 *
 * Invariants, at every instruction:
 * 1. data_floor is not behind wanted_floor. Both only grow.
 * 2. A consumer that has come to hold the tail stands at data_floor or
 *    behind it; one that is still coming, or died over it, may stand before.
 *    One of the holders, or the place where the tail rests, is at wanted_floor or behind it.
 * 3. Nothing behind data_floor is overwritten; it reaches the readers before
 *    a byte in front of it is.
 */
#include "shared/ring_layout.h"

/* A consumer that moves on so often while it is looked at is looked at no longer. */
#define TRIES 64

#define NOBODY UINT64_MAX

void ring_consumer_set(struct ring_consumer *consumer, const struct ring_place *place)
{
	uint64_t next = local_load(&consumer->sequence) + 1;

	/* Whoever sees a byte of the new place sees that the sequence has moved on since it chose
	 * this one.
	 */
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

/* Of HOLDERS at FLOOR or behind it; its position is NOBODY if there is none. */
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
