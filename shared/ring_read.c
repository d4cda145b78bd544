// SPDX-License-Identifier: Apache-2.0
/*
 * The reader's side. What lies in the shared memory is checked as if another
 * process had written it, and may change at any moment: each word is read
 * once, and a record is copied before its owner sees it.
 */
#include <stdlib.h>
#include <string.h>

#include "shared/ring_layout.h"

struct record_head {
	uint32_t size;
	uint16_t type;
	uint16_t flags;
};

/* Goes on behind HEAD: nothing between can be trusted to be records. */
static void skip_to(struct ring *ring, uint64_t head)
{
	__atomic_fetch_add(&ring->reader.broken, 1, __ATOMIC_RELAXED);
	ring->reader.position = head & ~7ull;
}

static bool possible(const struct ring *ring, const struct record_head *head, uint64_t available)
{
	if (head->size < sizeof(struct ring_record) || head->size % 8 || head->size > available)
		return false;
	if (head->size > ring_record_size(ring->payload_max))
		return false;
	return head->type != RING_RECORD_LOST ||
	       head->size == sizeof(struct ring_record) + sizeof(struct ring_lost);
}

static bool make_room(struct ring *ring, size_t size)
{
	struct ring_record *larger;
	size_t room = ring->reader.copy_size ? ring->reader.copy_size : 4096;

	if (size <= ring->reader.copy_size)
		return true;
	while (room < size)
		room *= 2;
	larger = realloc(ring->reader.copy, room);
	if (!larger)
		return false;
	ring->reader.copy = larger;
	ring->reader.copy_size = room;
	return true;
}

static const struct ring_record *copy_record(struct ring *ring, const struct record_head *head)
{
	struct ring_record *copy;
	const struct ring_record *record = ring_at(ring, ring->reader.position);

	if (!make_room(ring, head->size))
		return NULL;
	copy = ring->reader.copy;
	copy->size = head->size;
	copy->type = head->type;
	copy->flags = head->flags;
	memcpy(copy->payload, record->payload, head->size - sizeof(*record));
	return copy;
}

const struct ring_record *ring_read(struct ring *ring)
{
	uint64_t head = __atomic_load_n(&ring->header->data_head, __ATOMIC_ACQUIRE);
	const struct ring_record *record;
	struct record_head found;

	for (;;) {
		uint64_t available = head - ring->reader.position;

		if (!available)
			return NULL;
		if (available > ring->size || available % 8) {
			skip_to(ring, head);
			return NULL;
		}
		memcpy(&found, ring_at(ring, ring->reader.position), sizeof(found));
		if (!possible(ring, &found, available)) {
			skip_to(ring, head);
			return NULL;
		}
		if (found.type != RING_RECORD_PADDING)
			break;
		ring->reader.position += found.size;
	}
	record = copy_record(ring, &found);
	if (!record)
		return NULL;
	ring->reader.position += found.size;
	if (found.type != RING_RECORD_LOST)
		ring->reader.read++;
	return record;
}

void ring_read_done(struct ring *ring)
{
	__atomic_store_n(&ring->header->read, ring->reader.read, __ATOMIC_RELAXED);
	__atomic_store_n(&ring->header->data_tail, ring->reader.position, __ATOMIC_RELEASE);
}
