/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_timeline.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/sample_record.h"

#define CAPACITY_MIN (64ul << 10)

/* Each record's size is a multiple of 8, which keeps entries aligned. */
struct entry {
	uint64_t guest_time;
	struct sideband record; /* with the rest of the record after it */
};

static size_t entry_size(const struct sideband *record)
{
	return offsetof(struct entry, record) + record->size;
}

static bool reserve(struct agent_queue *queue, size_t size)
{
	size_t used = queue->end - queue->begin;

	if (queue->capacity - queue->end >= size)
		return true;
	if (used + size > AGENT_QUEUE_MAX)
		return false;
	if (queue->begin)
		memmove(queue->bytes, queue->bytes + queue->begin, used);
	queue->begin = 0;
	queue->end = used;
	size = used + size > CAPACITY_MIN ? used + size : CAPACITY_MIN;
	return !array_reserve(&queue->bytes, &queue->capacity, size);
}

bool agent_queue_add(struct agent_queue *queue, uint64_t guest_time, const struct sideband *record)
{
	size_t size = entry_size(record);
	struct entry *entry;

	assert(record->size % 8 == 0 && record->size >= sizeof(*record));
	if (!reserve(queue, size))
		return false;
	entry = (struct entry *)(queue->bytes + queue->end);
	entry->guest_time = guest_time;
	memcpy(&entry->record, record, record->size);
	queue->end += size;
	if (guest_time > queue->latest)
		queue->latest = guest_time;
	return true;
}

struct sideband *agent_queue_first(const struct agent_queue *queue, uint64_t *guest_time)
{
	struct entry *entry;

	if (queue->begin == queue->end)
		return NULL;
	entry = (struct entry *)(queue->bytes + queue->begin);
	*guest_time = entry->guest_time;
	return &entry->record;
}

/* Memory that a burst needed is freed after it. */
void agent_queue_pop(struct agent_queue *queue)
{
	const struct entry *entry = (const struct entry *)(queue->bytes + queue->begin);

	assert(queue->begin < queue->end);
	queue->begin += entry_size(&entry->record);
	if (queue->begin < queue->end)
		return;
	if (queue->capacity > CAPACITY_MIN)
		agent_queue_clear(queue);
	queue->begin = queue->end = queue->latest = 0;
}

void agent_queue_clear(struct agent_queue *queue)
{
	free(queue->bytes);
	*queue = (struct agent_queue){ 0 };
}

/* The start of RECORD's interval, if it has one, else NULL. */
static uint64_t *since_of(struct sideband *record)
{
	if (record->type == SIDEBAND_LOST)
		return &record->time;
	if (record->type == SIDEBAND_JIT_MAP)
		return &((struct sideband_jit_map *)record)->since;
	return record->type == SIDEBAND_JIT_CODE ? &((struct sideband_jit_code *)record)->since
						 : NULL;
}

static uint64_t *time_of(struct sideband *record)
{
	return record->type == SIDEBAND_LOST ? &((struct sideband_lost *)record)->until
					     : &record->time;
}

/* The latest possible time. */
static void convert_program_time(const struct agent_timeline *timeline,
				 struct sideband_jit_map *map)
{
	uint64_t error, time;

	if (!map->program)
		return;
	time = agent_clock_host_time(&timeline->clock, map->program, &error);
	map->program = error < UINT64_MAX - time ? time + error : 0;
}

/* A loss with a large error: extend its end instead. */
static void extend_loss(struct sideband *record, uint64_t error)
{
	struct sideband_lost *lost = (struct sideband_lost *)record;

	lost->until = error < UINT64_MAX - lost->until ? lost->until + error : UINT64_MAX;
	record->time_error = 0;
}

/* Converts RECORD's times. False if its time is not known well enough. */
static bool convert_times(struct agent_timeline *timeline, struct sideband *record,
			  uint64_t guest_time)
{
	uint64_t *since = since_of(record), error, time;

	*time_of(record) = agent_clock_host_time(&timeline->clock, guest_time, &error);
	record->time_error = error < UINT32_MAX ? (uint32_t)error : UINT32_MAX;
	if (error > AGENT_CLOCK_ERROR_MAX && record->type != SIDEBAND_LOST)
		return false;
	if (error > AGENT_CLOCK_ERROR_MAX)
		extend_loss(record, error);
	/* The earliest possible time: everything before it has been reported. */
	if (record->type == SIDEBAND_ROUND)
		record->time -= error < record->time ? error : record->time;
	if (since && *since) {
		time = agent_clock_host_time(&timeline->clock, *since, &error);
		*since = time > error ? time - error : 0;
	}
	if (record->type == SIDEBAND_JIT_MAP)
		convert_program_time(timeline, (struct sideband_jit_map *)record);
	return true;
}

static void write_to_ring(struct agent_timeline *timeline, const struct sideband *record)
{
	void *to = ring_reserve(timeline->ring, RECORD_SIDEBAND, record->size);

	if (to)
		memcpy(to, record, record->size);
	ring_commit(timeline->ring, to);
}

bool agent_timeline_emit_loss(struct agent_timeline *timeline)
{
	if (!timeline->loss.head.size)
		return true;
	if (!ring_has_room(timeline->ring, sizeof(timeline->loss)))
		return false;
	write_to_ring(timeline, &timeline->loss.head);
	ring_flush(timeline->ring); /* no other record may follow */
	timeline->loss.head.size = 0;
	return true;
}

/* Records without room in the ring stay in the queue. */
void agent_timeline_emit(struct agent_timeline *timeline)
{
	struct sideband *record;
	uint64_t guest_time;

	if (timeline->broken || !agent_timeline_emit_loss(timeline))
		return;
	while ((record = agent_queue_first(&timeline->queue, &guest_time)) &&
	       agent_clock_covers(&timeline->clock, guest_time) &&
	       ring_has_room(timeline->ring, record->size)) {
		timeline->broken |= !convert_times(timeline, record, guest_time);
		if (timeline->broken)
			return;
		write_to_ring(timeline, record);
		if (*time_of(record) > timeline->emitted)
			timeline->emitted = *time_of(record);
		agent_queue_pop(&timeline->queue);
	}
}

static bool is_event(struct sideband *record)
{
	return record->type != SIDEBAND_ROUND && !since_of(record);
}

/* Counts a record whose time is unknown. */
static void drop(struct agent_timeline *timeline, struct sideband *record, uint64_t guest_time)
{
	const struct sideband_lost *lost =
		record->type == SIDEBAND_LOST ? (const void *)record : NULL;
	uint64_t since = lost ? record->time : guest_time;

	if (!lost && !is_event(record))
		return;
	timeline->dropped.events += !lost;
	timeline->dropped.lost += lost ? lost->count : 0;
	if (since < timeline->dropped.since)
		timeline->dropped.since = since;
}

void agent_timeline_add(struct agent_timeline *timeline, struct sideband *record,
			uint64_t guest_time)
{
	timeline->added++;
	if (!agent_queue_add(&timeline->queue, guest_time, record)) {
		drop(timeline, record, guest_time);
		timeline->broken = true;
	}
	agent_timeline_emit(timeline);
}

static void drop_queue(struct agent_timeline *timeline)
{
	struct sideband *record;
	uint64_t guest_time;

	while ((record = agent_queue_first(&timeline->queue, &guest_time))) {
		drop(timeline, record, guest_time);
		agent_queue_pop(&timeline->queue);
	}
	agent_queue_clear(&timeline->queue);
}

/* The loss starts at the earliest dropped record, or after the latest emitted one. */
static uint64_t loss_begins(const struct agent_timeline *timeline)
{
	uint64_t error,
		since = agent_clock_host_time(&timeline->clock, timeline->dropped.since, &error);

	since -= error < since ? error : since;
	return since < timeline->emitted ? since : timeline->emitted;
}

/* Everything reported so far becomes uncertain, because no events are recorded between two
 * sessions. */
static void lose_session(struct agent_timeline *timeline)
{
	struct sideband_lost *loss = &timeline->loss;
	uint64_t since;

	drop_queue(timeline);
	if (!timeline->emitted)
		return; /* nothing was reported */
	since = loss_begins(timeline);
	if (!loss->head.size)
		*loss = (struct sideband_lost){
			.head = { .size = sizeof(*loss), .type = SIDEBAND_LOST, .time = since }
		};
	if (since < loss->head.time)
		loss->head.time = since;
	if (timeline->emitted > loss->until)
		loss->until = timeline->emitted;
	loss->count += timeline->dropped.events + timeline->dropped.lost;
	agent_timeline_emit_loss(timeline);
}

/* Records after the latest exchange happened between it and their arrival. */
static void emit_last(struct agent_timeline *timeline, uint64_t received)
{
	if (!timeline->broken && timeline->queue.latest &&
	    agent_clock_end(&timeline->clock, received, timeline->queue.latest))
		agent_timeline_emit(timeline);
}

void agent_timeline_begin(struct agent_timeline *timeline)
{
	timeline->clock = (struct agent_clock){ 0 };
	timeline->broken = false;
	timeline->emitted = timeline->dropped.events = timeline->dropped.lost = 0;
	timeline->dropped.since = UINT64_MAX;
}

bool agent_timeline_needs_exchange(const struct agent_timeline *timeline)
{
	return timeline->queue.end - timeline->queue.begin > AGENT_QUEUE_MAX / 4 &&
	       !agent_clock_covers(&timeline->clock, timeline->queue.latest);
}

uint64_t agent_timeline_end(struct agent_timeline *timeline, uint64_t received)
{
	emit_last(timeline, received);
	lose_session(timeline);
	return timeline->dropped.events;
}

uint64_t agent_timeline_stop(struct agent_timeline *timeline, uint64_t received)
{
	uint64_t dropped = 0;

	emit_last(timeline, received);
	if (timeline->queue.latest) {
		lose_session(timeline);
		dropped = timeline->dropped.events;
	}
	if (!agent_timeline_emit_loss(timeline))
		write_to_ring(timeline, &timeline->loss.head); /* the ring counts it as lost */
	ring_flush(timeline->ring);
	return dropped;
}

void agent_timeline_free(struct agent_timeline *timeline)
{
	agent_queue_clear(&timeline->queue);
}
