/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was looked up behind the stops of a flight recorder's samples
 * (vmm/guest/linux/deferred_lookup.h): the rings have these as their stops left them, so they are
 * kept once more, as they became.
 *
 * Of each ring in another one as large, made when it has the first such sample. It overwrites its
 * oldest: a sample that is gone there stays as its stop left it.
 *
 * The collector's thread.
 */
#ifndef KVMSCOPE_RECORD_FLIGHT_DEFERRED_H
#define KVMSCOPE_RECORD_FLIGHT_DEFERRED_H

#include <stddef.h>
#include <stdint.h>

#include "shared/ring.h"
#include "shared/sample_record.h"

struct flight_deferred {
	struct ring *const *of;
	struct ring **rings; /* owned; NULL: that one has no such sample */
	size_t count;
	uint64_t failed;   /* rings that could not be made; told when it happened first */
	uint64_t next_try; /* behind that none is made for samples before, ns by their clock */
};

/* ns until a ring is tried again. */
#define FLIGHT_DEFERRED_PAUSE 10000000000ull

/* For samples of the COUNT rings OF, which outlive it. -ENOMEM. */
int flight_deferred_init(struct flight_deferred *late, struct ring *const *of, size_t count);
/* What was never made may be freed, if it is zero. */
void flight_deferred_free(struct flight_deferred *late);

/* SAMPLE is of ring number RING; they come in the order that they have there. Where no ring can be
 * made it is not kept. */
void flight_deferred_keep(struct flight_deferred *late, size_t ring, const struct sample *sample);

/* Those of one ring, as they are looked for in the order that they have there. */
struct flight_deferred_reader {
	struct ring_snapshot snapshot;
	const struct ring_record *next; /* NULL: there is none left */
};

/* Without memory for a copy there are none. Free it with flight_deferred_end(). */
void flight_deferred_begin(struct flight_deferred_reader *reader,
			   const struct flight_deferred *late, size_t ring);
/* What SAMPLE became, or SAMPLE itself; the reader's. */
const struct sample *flight_deferred_find(struct flight_deferred_reader *reader,
					  const struct sample *sample);
void flight_deferred_end(struct flight_deferred_reader *reader);

#endif
