/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver: the stage of the collector that attributes samples. Samples of all vCPUs and
 * sideband events of all sources go in as they leave their rings. They come out in order of time,
 * each sample with its process and with one decision for each of its user addresses: what was
 * mapped there at the time of the sample. docs/resolver.md has the rules.
 *
 *	rings --samples, sideband--> resolver --in order of time--> file
 *
 * symbolizer.h is something else: it reads a finished file, where every event is known before the
 * first lookup. The resolver keeps nothing longer than a sample may still need it.
 *
 * Collector thread only. No function blocks or reads a file. Sideband has passed sideband_check()
 * and is not trusted beyond that.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_H
#define KVMSCOPE_RESOLVE_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/loss_counts.h"
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "vmm/guest/guest_account.h"
#include "vmm/resolve/resolver_image.h"

struct resolver;

/* ns: upper bound of the time error of a source that has not reported its error yet. */
#define RESOLVER_REACH 100000000ull

enum resolver_verdict {
	RESOLVER_UNKNOWN,   /* nothing is reported, or only what a later loss has made stale */
	RESOLVER_AMBIGUOUS, /* the reports allow several mappings: readers must not look it up */
	RESOLVER_REPORTED,  /* by a source */
	RESOLVER_CARRIED,   /* by the sample itself; the reports say nothing or something else */
	RESOLVER_CONFIRMED, /* by both */
};

/* The decision for one address at the time of a sample. */
struct resolver_mapping {
	enum resolver_verdict verdict;
	uint16_t carried; /* index into the sample's mappings, with CARRIED and CONFIRMED */
	const struct resolver_image *image; /* NULL with UNKNOWN and AMBIGUOUS */
	uint64_t start, end;                /* GVA, of the mapping */
	uint64_t offset;                    /* of the address in the image's file, bytes */
	/*
	 * ns: in a file that has all reports at their own times, the address reads as reported from
	 * here on. UINT64_MAX: it does not read so at the time of the sample, as those times are
	 * not exact.
	 */
	uint64_t reported;
};

/* Valid during the call that passes it on. */
struct attributed_sample {
	const struct sample *sample;         /* its task is filled in as far as it is known */
	struct resolver_mapping mapping;     /* of the RIP */
	const struct resolver_mapping *user; /* of each address of the user call chain */
};

/* The sample's own mapping that a CARRIED or CONFIRMED decision is based on. */
static inline const struct sample_mapping *
resolver_carried_mapping(const struct sample *sample, const struct resolver_mapping *decision)
{
	return &sample_mappings(sample)[decision->carried];
}

struct resolver_options {
	size_t rings;                  /* that samples and sideband come from, numbered from 0 */
	struct guest_account *account; /* charged for all sideband; outlives the resolver */
	const struct image_catalog *images; /* of mappings that samples carry; outlives it; NULL */
	/* ns that a record may come after one of a later time. For sources that send
	 * SIDEBAND_ROUND, a sample waits until they have reported its time, LONGEST at most. */
	uint64_t window, longest;
	/* ns: a sample is decided only after all events that may precede it, given time errors up
	 * to this; applies from the first event on. */
	uint64_t reach;
	/* Called in order of time, except for late records; may be NULL. SIDEBAND gets all events
	 * except rounds. */
	void (*sample)(void *context, const struct attributed_sample *sample);
	void (*sideband)(void *context, const struct sideband *record);
	void *context;
};

struct resolver_statistics {
	uint64_t samples, sideband; /* emitted */
	size_t lifetimes;           /* address spaces that are remembered, ended ones included */
	size_t waiting;             /* bytes of records that wait for their time */
	size_t memory;              /* bytes of all that is remembered */
};

int resolver_create(struct resolver **resolver,
		    const struct resolver_options *options); /* 0 or -ENOMEM */
void resolver_free(struct resolver *resolver); /* NULL is a no-op; waiting records are dropped */

/* A pass over the rings begins. Records older than NOW (ns, the samples' clock) are in the rings,
 * or will be late. */
void resolver_begin_pass(struct resolver *resolver, uint64_t now);

/*
 * Copy a record out of ring RING. One that comes after its window is emitted at once and counted;
 * so is one that there is no memory for. SAMPLE has at most SAMPLE_CALLCHAIN_MAX addresses. RECORD
 * was returned by sideband_check(), or is NULL for one that was refused there.
 */
void resolver_sample(struct resolver *resolver, size_t ring, const struct sample *sample);
void resolver_sideband(struct resolver *resolver, size_t ring, const struct sideband *record);

/* Ring RING is empty: everything that its writer had published when the pass began was read. */
void resolver_pass_end(struct resolver *resolver, size_t ring);

/* Emits all that is older than the window. */
void resolver_flush(struct resolver *resolver);
/* ns: all records before this time were emitted, except late ones. Events up to a second later may
 * have been emitted, too, because samples wait for them. */
uint64_t resolver_settled(const struct resolver *resolver);
/* Emits everything; records that follow are late. */
void resolver_finish(struct resolver *resolver);

/* Of everything emitted so far. */
void resolver_losses(const struct resolver *resolver, struct losses *losses);
void resolver_statistics(const struct resolver *resolver, struct resolver_statistics *statistics);

#endif
