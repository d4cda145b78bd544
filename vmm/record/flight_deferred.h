/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of a flight recorder with the results of deferred lookups
 * (vmm/guest/linux/deferred_lookup.h). The rings keep samples as their stops wrote them, so
 * completed ones are stored here: in a ring for each ring, of the same size, created for its first
 * such sample. It overwrites its oldest; a sample that is gone there stays incomplete.
 *
 * Collector thread.
 */
#ifndef KVMSCOPE_RECORD_FLIGHT_DEFERRED_H
#define KVMSCOPE_RECORD_FLIGHT_DEFERRED_H

#include <stddef.h>
#include <stdint.h>

#include "shared/ring.h"
#include "shared/sample_record.h"

struct flight_deferred {
	struct ring *const *of;
	struct ring **rings; /* owned; NULL: no such sample yet */
	size_t count;
	uint64_t failed;   /* rings that could not be created; the first was logged */
	uint64_t next_try; /* ns, by the samples' clock: no ring is created before */
};

/* ns until creating a ring is tried again. */
#define FLIGHT_DEFERRED_PAUSE 10000000000ull

/* For samples of the COUNT rings OF, which outlive it. -ENOMEM. */
int flight_deferred_init(struct flight_deferred *late, struct ring *const *of, size_t count);
/* May be called for a zeroed object. */
void flight_deferred_free(struct flight_deferred *late);

/* Stores SAMPLE of ring RING, in the order of that ring; dropped if there is no ring for it. */
void flight_deferred_keep(struct flight_deferred *late, size_t ring, const struct sample *sample);

/* Finds the samples of one ring, in its order. */
struct flight_deferred_reader {
	struct ring_snapshot snapshot;
	const struct ring_record *next; /* NULL: none left */
};

/* Without memory it finds nothing. To be freed with flight_deferred_end(). */
void flight_deferred_begin(struct flight_deferred_reader *reader,
			   const struct flight_deferred *late, size_t ring);
/* The completed SAMPLE, valid until the end, or SAMPLE itself. */
const struct sample *flight_deferred_find(struct flight_deferred_reader *reader,
					  const struct sample *sample);
void flight_deferred_end(struct flight_deferred_reader *reader);

#endif
