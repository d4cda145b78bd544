/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the whole ring, then cuts off what the writer may have overwritten meanwhile.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/local_atomic.h"
#include "shared/ring_layout.h"

/* Attempts before giving up because the writer overwrote everything. */
#define TRIES 8

static bool is_internal(const struct ring_record *record)
{
	return record->type == RING_RECORD_MARK || record->type == RING_RECORD_PADDING;
}

/* Validates the copy once, so that its readers do not have to. */
static void check_records(const struct ring *ring, struct ring_snapshot *snapshot)
{
	size_t at = 0;

	while (at < snapshot->size) {
		struct ring_record_head head;

		memcpy(&head, snapshot->bytes + at, sizeof(head));
		if (!ring_record_is_possible(ring, &head, snapshot->size - at))
			break;
		snapshot->count += head.type != RING_RECORD_MARK &&
				   head.type != RING_RECORD_PADDING &&
				   head.type != RING_RECORD_LOST;
		at += head.size;
	}
	snapshot->broken |= at < snapshot->size;
	snapshot->size = at;
}

static int make_room(struct ring_snapshot *snapshot, size_t size)
{
	uint8_t *bytes;

	if (size <= snapshot->size)
		return 0;
	bytes = realloc(snapshot->bytes, size);
	if (!bytes)
		return error_set(-ENOMEM, "no memory for %zu bytes of a ring's records", size);
	snapshot->bytes = bytes;
	snapshot->size = size;
	return 0;
}

/* Moves START to the first record that was not overwritten when the copy was complete. */
static bool cut_overwritten(const struct ring *ring, struct ring_place *start)
{
	struct ring_place whole;

	local_keep_order();
	if (ring_floor(ring) <= start->position)
		return true;
	if (!ring_oldest(ring, &whole))
		return false;
	*start = whole;
	return true;
}

/* Copies once. 1 if the writer overwrote it all meanwhile. */
static int copy_all(const struct ring *ring, struct ring_snapshot *snapshot)
{
	struct ring_place begin, start;
	uint64_t head;
	int error;

	if (!ring_oldest(ring, &begin))
		return 1;
	/* Read after the oldest, so that it is not before it. */
	head = load_acquire(&ring->header->data_head) & ~7ull;
	snapshot->broken = head - begin.position > ring->size;
	if (snapshot->broken)
		head = begin.position;
	error = make_room(snapshot, head - begin.position);
	if (error)
		return error;
	ring_copy_racing(snapshot->bytes, ring_at(ring, begin.position), head - begin.position);
	start = begin;
	if (!cut_overwritten(ring, &start) || start.position < begin.position ||
	    start.position > head)
		return 1;
	snapshot->before = start.before;
	snapshot->size = head - start.position;
	if (start.position > begin.position)
		memmove(snapshot->bytes, snapshot->bytes + (start.position - begin.position),
			snapshot->size);
	return 0;
}

int ring_snapshot(const struct ring *ring, struct ring_snapshot *snapshot)
{
	int tries = 0, result;

	*snapshot = (struct ring_snapshot){ 0 };
	do {
		result = copy_all(ring, snapshot);
	} while (result > 0 && ++tries < TRIES);
	if (result > 0)
		result = error_set(
			-EAGAIN,
			"the ring of %zu bytes is overwritten faster than it can be copied "
			"(make it larger), or broken",
			(size_t)ring->size);
	if (result) {
		ring_snapshot_free(snapshot);
		return result;
	}
	check_records(ring, snapshot);
	return 0;
}

const struct ring_record *ring_snapshot_next(const struct ring_snapshot *snapshot,
					     const struct ring_record *previous)
{
	size_t at = previous
			    ? (size_t)((const uint8_t *)previous - snapshot->bytes) + previous->size
			    : 0;

	while (at < snapshot->size) {
		const struct ring_record *record =
			(const struct ring_record *)(snapshot->bytes + at);

		if (!is_internal(record))
			return record;
		at += record->size;
	}
	return NULL;
}

void ring_snapshot_free(struct ring_snapshot *snapshot)
{
	free(snapshot->bytes);
	*snapshot = (struct ring_snapshot){ 0 };
}
