/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/flight_deferred.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"

int flight_deferred_init(struct flight_deferred *late, struct ring *const *of, size_t count)
{
	late->of = of;
	late->rings = calloc(count, sizeof(struct ring *));
	late->count = late->rings ? count : 0;
	return late->rings || !count ? 0 : error_set(-ENOMEM, "no memory for %zu rings", count);
}

void flight_deferred_free(struct flight_deferred *late)
{
	while (late->count)
		ring_destroy(late->rings[--late->count]);
	free(late->rings);
	late->rings = NULL;
}

static size_t size_of(const struct ring *ring)
{
	size_t size = RING_SIZE_MIN;

	while (size / 2 < ring_payload_max(ring))
		size *= 2;
	return size;
}

static void make_ring(struct flight_deferred *late, size_t index, uint64_t now)
{
	const struct ring_options options = { .size = size_of(late->of[index]),
					      .mode = RING_MODE_OVERWRITE };

	if (now < late->next_try || !ring_create_with(&late->rings[index], &options))
		return;
	late->rings[index] = NULL;
	late->next_try = now + FLIGHT_DEFERRED_PAUSE;
	if (!late->failed++)
		log_warning(
			"samples of the flight recorder lack the results of deferred lookups: %s",
			error_message());
}

static struct ring *ring_of(struct flight_deferred *late, size_t index, uint64_t now)
{
	if (!late->rings[index])
		make_ring(late, index, now);
	return late->rings[index];
}

void flight_deferred_keep(struct flight_deferred *late, size_t index, const struct sample *sample)
{
	struct ring *ring = ring_of(late, index, sample->time);
	size_t size = sample_length(sample);
	void *place = ring ? ring_reserve(ring, RECORD_SAMPLE, size) : NULL;

	if (!place)
		return;
	memcpy(place, sample, size);
	ring_commit(ring, place);
	ring_publish(ring);
}

void flight_deferred_begin(struct flight_deferred_reader *reader,
			   const struct flight_deferred *late, size_t ring)
{
	*reader = (struct flight_deferred_reader){ 0 };
	if (ring < late->count && late->rings[ring] &&
	    !ring_snapshot(late->rings[ring], &reader->snapshot))
		reader->next = ring_snapshot_next(&reader->snapshot, NULL);
}

static const struct sample *sample_of(const struct ring_record *record)
{
	return (const void *)record->payload;
}

const struct sample *flight_deferred_find(struct flight_deferred_reader *reader,
					  const struct sample *sample)
{
	if (!sample->deferred)
		return sample;
	while (reader->next && (reader->next->type != RECORD_SAMPLE ||
				sample_of(reader->next)->time < sample->time))
		reader->next = ring_snapshot_next(&reader->snapshot, reader->next);
	return reader->next && sample_of(reader->next)->time == sample->time &&
			       sample_of(reader->next)->event == sample->event
		       ? sample_of(reader->next)
		       : sample;
}

void flight_deferred_end(struct flight_deferred_reader *reader)
{
	ring_snapshot_free(&reader->snapshot);
}
