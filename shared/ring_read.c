/* SPDX-License-Identifier: Apache-2.0 */
/* The reader's side. The shared memory is untrusted and may change at any moment: each word is read
 * once, and a record is copied before it is returned. A copy is valid only if data_floor has not
 * passed its start when it is complete.
 */
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/local_atomic.h"
#include "shared/ring_layout.h"

/* Give up after this number of overruns within one call. */
#define TRIES 64
/* First size of the copy, bytes. */
#define COPY_MIN 4096u

/* The race is intended, which ThreadSanitizer cannot know. */
__attribute__((no_sanitize("thread"))) void ring_copy_racing(void *to, const void *from,
							     size_t bytes)
{
	const volatile uint64_t *source = from;
	uint64_t *words = to;

	for (size_t i = 0; i < bytes / 8; i++)
		words[i] = source[i];
}

/* NOLINTBEGIN(clang-analyzer-core.UndefinedBinaryOperatorResult): filled by ring_copy_racing() */
bool ring_record_is_possible(const struct ring *ring, const struct ring_record_head *head,
			     uint64_t available)
{
	if (head->size < sizeof(struct ring_record) || head->size % 8 || head->size > available)
		return false;
	if (head->size > ring->size / 2)
		return false;
	if (head->type == RING_RECORD_LOST)
		return head->size == RING_LOST_SIZE;
	return head->type != RING_RECORD_MARK || head->size == RING_MARK_SIZE;
}
/* NOLINTEND(clang-analyzer-core.UndefinedBinaryOperatorResult) */

/* Continues at HEAD: the bytes before it are not trusted. */
static void skip_to(struct ring *ring, uint64_t head)
{
	__atomic_fetch_add(&ring->reader.broken, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&ring->reader.position, head & ~7ull, __ATOMIC_RELAXED);
	ring->reader.head = 0;
}

static bool make_room(struct ring *ring, size_t size)
{
	void *copy = array_grown(ring->reader.copy, &ring->reader.copy_size,
				 size > COPY_MIN ? size : COPY_MIN, 1);

	if (copy)
		ring->reader.copy = copy;
	return copy;
}

static bool copy_record(struct ring *ring, const struct ring_record_head *head)
{
	struct ring_record *copy;
	const struct ring_record *record = ring_at(ring, ring->reader.position);
	size_t bytes = head->size - sizeof(*record);

	if (!make_room(ring, head->size))
		return false;
	copy = ring->reader.copy;
	copy->size = head->size;
	copy->type = head->type;
	copy->flags = head->flags;
	if (ring->reader.consumer)
		memcpy(copy->payload, record->payload, bytes);
	else
		ring_copy_racing(copy->payload, record->payload, bytes);
	return true;
}

/* True if the last copy may be incomplete, because the writer has overwritten its source. */
static bool overrun(const struct ring *ring)
{
	local_keep_order();
	return ring->reader.position < ring_floor(ring);
}

/* Makes an OVERRUN record in the copy. */
static bool report_overrun(struct ring *ring, uint64_t count)
{
	struct ring_record_head head = { .size = RING_LOST_SIZE, .type = RING_RECORD_OVERRUN };

	if (!make_room(ring, head.size))
		return false;
	memcpy(ring->reader.copy, &head, sizeof(head));
	memcpy(ring->reader.copy->payload, &count, sizeof(count));
	return true;
}

/* There are COUNT records before the reader's position. *MISSED gets the number not read; false
 * without memory to report them. */
static bool note_overrun(struct ring *ring, uint64_t count, uint64_t *missed)
{
	*missed = count > ring->reader.read ? count - ring->reader.read : 0;
	if (*missed && !report_overrun(ring, *missed))
		return false;
	__atomic_fetch_add(&ring->reader.overrun, *missed, __ATOMIC_RELAXED);
	__atomic_store_n(&ring->reader.read, ring->reader.read + *missed, __ATOMIC_RELAXED);
	ring->reader.resync = false;
	return true;
}

/* Counts the missed records at a mark after catching up. */
static bool count_at_mark(struct ring *ring, uint64_t *missed)
{
	struct ring_mark mark;

	memcpy(&mark, ring->reader.copy->payload, sizeof(mark));
	return note_overrun(ring, mark.count, missed);
}

enum step { STEP_RECORD, STEP_AGAIN, STEP_NOTHING };

/* Consumes the valid copy. */
static enum step take_record(struct ring *ring, const struct ring_record_head *found)
{
	uint64_t missed = 0;

	if (found->type == RING_RECORD_MARK && ring->reader.resync && !count_at_mark(ring, &missed))
		return STEP_NOTHING;
	__atomic_store_n(&ring->reader.position, ring->reader.position + found->size,
			 __ATOMIC_RELAXED);
	if (found->type == RING_RECORD_MARK)
		return missed ? STEP_RECORD : STEP_AGAIN;
	if (found->type == RING_RECORD_PADDING)
		return STEP_AGAIN;
	if (found->type != RING_RECORD_LOST)
		__atomic_store_n(&ring->reader.read, ring->reader.read + 1, __ATOMIC_RELAXED);
	return STEP_RECORD;
}

/* Continues at the oldest readable record. */
static enum step catch_up(struct ring *ring)
{
	struct ring_place oldest;
	uint64_t missed;

	if (ring->mode == RING_MODE_OVERWRITE) {
		__atomic_store_n(&ring->reader.position, ring_floor(ring), __ATOMIC_RELAXED);
		ring->reader.resync = true;
		return STEP_AGAIN;
	}
	if (!ring_oldest(ring, &oldest) || oldest.position <= ring->reader.position ||
	    !note_overrun(ring, oldest.before, &missed))
		return STEP_NOTHING;
	__atomic_store_n(&ring->reader.position, oldest.position, __ATOMIC_RELAXED);
	return missed ? STEP_RECORD : STEP_AGAIN;
}

static enum step read_step(struct ring *ring)
{
	struct ring_record_head found = { 0 };
	uint64_t available;

	if (ring->reader.position < ring_floor(ring))
		return catch_up(ring);
	/* Read after the floor, so that it is not below it. Seldom, as it takes the cache line from
	 * the writer. */
	if (ring->reader.position >= ring->reader.head)
		ring->reader.head = load_acquire(&ring->header->data_head);
	available = ring->reader.head - ring->reader.position;
	if (!available)
		return STEP_NOTHING;
	if (available <= ring->size && available % 8 == 0) {
		ring_copy_racing(&found, ring_at(ring, ring->reader.position), sizeof(found));
		if (ring_record_is_possible(ring, &found, available)) {
			if (!copy_record(ring, &found))
				return STEP_NOTHING;
			return overrun(ring) ? STEP_AGAIN : take_record(ring, &found);
		}
	}
	if (overrun(ring))
		return STEP_AGAIN;
	skip_to(ring, ring->reader.head);
	return STEP_NOTHING;
}

const struct ring_record *ring_read(struct ring *ring)
{
	enum step step;
	int overruns = 0;

	do {
		uint64_t position = ring->reader.position;

		step = read_step(ring);
		overruns += position == ring->reader.position || ring->reader.resync;
	} while (step == STEP_AGAIN && overruns < TRIES);
	return step == STEP_RECORD ? ring->reader.copy : NULL;
}

void ring_read_done(struct ring *ring)
{
	struct ring_place place = { ring->reader.position, ring->reader.read };

	if (!ring->reader.consumer || place.position == ring->reader.released)
		return;
	ring->reader.released = place.position;
	ring_consumer_set(ring->reader.consumer, &place);
}

/* Overwrite mode: reads the mark at the floor. */
static bool oldest_by_mark(const struct ring *ring, struct ring_place *place)
{
	struct {
		struct ring_record_head head;
		struct ring_mark mark;
	} found = { 0 };

	for (int try = 0; try < TRIES; try++) {
		*place = (struct ring_place){ .position = ring_floor(ring) };
		if (!place->position)
			return true;
		ring_copy_racing(&found, ring_at(ring, place->position), sizeof(found));
		local_keep_order();
		if (ring_floor(ring) != place->position)
			continue;
		/* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): as above */
		if (found.head.type != RING_RECORD_MARK)
			return false;
		place->before = found.mark.count;
		return true;
	}
	return false;
}

bool ring_oldest(const struct ring *ring, struct ring_place *place)
{
	if (ring->mode == RING_MODE_OVERWRITE)
		return oldest_by_mark(ring, place);
	return ring_tail(ring, load_acquire(&ring->header->holders), ring_floor(ring), place);
}
