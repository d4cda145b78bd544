// SPDX-License-Identifier: Apache-2.0
#include "vmm/agent/agent_placer.h"

#include <string.h>

#include "shared/sample_record.h"

/* What happened at some moment between two times: the earlier one; NULL: there is one time only. */
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

/* The latest that it can have been. */
static void put_program_into_time(const struct agent_placer *placer, struct sideband_jit_map *map)
{
	uint64_t error, time;

	if (!map->program)
		return;
	time = agent_clock_host_time(&placer->clock, map->program, &error);
	map->program = error < UINT64_MAX - time ? time + error : 0;
}

/* Long ago, and told late: up to when at the latest. */
static void put_loss_into_time(struct sideband *record, uint64_t error)
{
	struct sideband_lost *lost = (struct sideband_lost *)record;

	lost->until = error < UINT64_MAX - lost->until ? lost->until + error : UINT64_MAX;
	record->time_error = 0;
}

/* RECORD is of GUEST_TIME. False: when that was is not known well enough for anybody to use it. */
static bool put_into_time(struct agent_placer *placer, struct sideband *record, uint64_t guest_time)
{
	uint64_t *since = since_of(record), error, time;

	*time_of(record) = agent_clock_host_time(&placer->clock, guest_time, &error);
	record->time_error = error < UINT32_MAX ? (uint32_t)error : UINT32_MAX;
	if (error > AGENT_CLOCK_ERROR_MAX && record->type != SIDEBAND_LOST)
		return false;
	if (error > AGENT_CLOCK_ERROR_MAX)
		put_loss_into_time(record, error);
	/* It is told of all before that for sure. */
	if (record->type == SIDEBAND_ROUND)
		record->time -= error < record->time ? error : record->time;
	if (since && *since) {
		time = agent_clock_host_time(&placer->clock, *since, &error);
		*since = time > error ? time - error : 0;
	}
	if (record->type == SIDEBAND_JIT_MAP)
		put_program_into_time(placer, (struct sideband_jit_map *)record);
	return true;
}

static void write_to_ring(struct agent_placer *placer, const struct sideband *record)
{
	void *to = ring_reserve(placer->ring, RECORD_SIDEBAND, record->size);

	if (to)
		memcpy(to, record, record->size);
	ring_commit(placer->ring, to);
}

bool agent_placer_write_loss(struct agent_placer *placer)
{
	if (!placer->loss.head.size)
		return true;
	if (!ring_has_room(placer->ring, sizeof(placer->loss)))
		return false;
	write_to_ring(placer, &placer->loss.head);
	ring_flush(placer->ring); /* the guest may say nothing any more */
	placer->loss.head.size = 0;
	return true;
}

/* The others wait for the ring's reader. */
void agent_placer_place(struct agent_placer *placer)
{
	struct sideband *record;
	uint64_t guest_time;

	if (placer->broken || !agent_placer_write_loss(placer))
		return;
	while ((record = agent_held_first(&placer->held, &guest_time)) &&
	       agent_clock_reaches(&placer->clock, guest_time) &&
	       ring_has_room(placer->ring, record->size)) {
		placer->broken |= !put_into_time(placer, record, guest_time);
		if (placer->broken)
			return;
		write_to_ring(placer, record);
		if (*time_of(record) > placer->placed)
			placer->placed = *time_of(record);
		agent_held_drop(&placer->held);
	}
}

static bool is_event(struct sideband *record)
{
	return record->type != SIDEBAND_ROUND && !since_of(record);
}

/* Events whose time nobody knows are counted, and not guessed. */
static void drop(struct agent_placer *placer, struct sideband *record, uint64_t guest_time)
{
	const struct sideband_lost *lost =
		record->type == SIDEBAND_LOST ? (const void *)record : NULL;
	uint64_t since = lost ? record->time : guest_time;

	if (!lost && !is_event(record))
		return;
	placer->dropped.events += !lost;
	placer->dropped.lost += lost ? lost->count : 0;
	if (since < placer->dropped.since)
		placer->dropped.since = since;
}

void agent_placer_write(struct agent_placer *placer, struct sideband *record, uint64_t guest_time)
{
	if (!agent_held_add(&placer->held, guest_time, record)) {
		drop(placer, record, guest_time);
		placer->broken = true;
	}
	agent_placer_place(placer);
}

static void drop_held(struct agent_placer *placer)
{
	struct sideband *record;
	uint64_t guest_time;

	while ((record = agent_held_first(&placer->held, &guest_time))) {
		drop(placer, record, guest_time);
		agent_held_drop(&placer->held);
	}
	agent_held_clear(&placer->held);
}

/* Nothing of this time or later is known: of the earliest that was dropped, or of the latest that
 * was not. */
static uint64_t loss_begins(const struct agent_placer *placer)
{
	uint64_t error,
		since = agent_clock_host_time(&placer->clock, placer->dropped.since, &error);

	since -= error < since ? error : since;
	return since < placer->placed ? since : placer->placed;
}

/* What was told so far may not be so any more: between two sessions nobody listens to the guest's
 * kernel. */
static void lose_session(struct agent_placer *placer)
{
	struct sideband_lost *loss = &placer->loss;
	uint64_t since;

	drop_held(placer);
	if (!placer->placed)
		return; /* it told nothing */
	since = loss_begins(placer);
	if (!loss->head.size)
		*loss = (struct sideband_lost){
			.head = { .size = sizeof(*loss), .type = SIDEBAND_LOST, .time = since }
		};
	if (since < loss->head.time)
		loss->head.time = since;
	if (placer->placed > loss->until)
		loss->until = placer->placed;
	loss->count += placer->dropped.events + placer->dropped.lost;
	agent_placer_write_loss(placer);
}

/* What came behind the latest exchange happened between that and when it came. */
static void place_last(struct agent_placer *placer, uint64_t received)
{
	if (!placer->broken && placer->held.latest &&
	    agent_clock_end(&placer->clock, received, placer->held.latest))
		agent_placer_place(placer);
}

void agent_placer_begin(struct agent_placer *placer)
{
	placer->clock = (struct agent_clock){ 0 };
	placer->broken = false;
	placer->placed = placer->dropped.events = placer->dropped.lost = 0;
	placer->dropped.since = UINT64_MAX;
}

bool agent_placer_holds_much(const struct agent_placer *placer)
{
	return placer->held.end - placer->held.begin > AGENT_HELD_MAX / 4 &&
	       !agent_clock_reaches(&placer->clock, placer->held.latest);
}

uint64_t agent_placer_end(struct agent_placer *placer, uint64_t received)
{
	place_last(placer, received);
	lose_session(placer);
	return placer->dropped.events;
}

uint64_t agent_placer_stop(struct agent_placer *placer, uint64_t received)
{
	uint64_t dropped = 0;

	place_last(placer, received);
	if (placer->held.latest) {
		lose_session(placer);
		dropped = placer->dropped.events;
	}
	if (!agent_placer_write_loss(placer))
		write_to_ring(placer,
			      &placer->loss.head); /* the ring's own count of losses says so */
	ring_flush(placer->ring);
	return dropped;
}

void agent_placer_free(struct agent_placer *placer)
{
	agent_held_clear(&placer->held);
}
