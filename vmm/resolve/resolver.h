/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver: the stage of the collector that turns a raw address into
 * (image, offset) while it is still known what was mapped. Samples of all
 * vCPUs and sideband of all sources go in as they come out of their rings;
 * they come out in order of time, each sample with the process that it was
 * taken in and with what was mapped at its time. docs/resolver.md tells how.
 *
 *	rings --sample, sideband--> resolver --in order of time--> file, live views
 *
 * Not to be taken for symbolizer.h, which reads a finished file for a
 * report and looks symbols up: there all is known before the first question
 * is asked, here nothing is kept longer than somebody may ask for it.
 *
 * One thread: the collector's. No function blocks or reads a file. What the
 * sideband says is checked by sideband_check() and not trusted beyond that.
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

/* ns: what a source knows of its guest's clock is better than this, also before it has said so. */
#define RESOLVER_REACH 100000000ull

/* An address in an image; IMAGE is NULL where nothing was known to be mapped, or it is not sure
 * what. */
struct resolver_place {
	const struct resolver_image *image;
	uint64_t offset; /* in the image's file, bytes */
	bool unsure; /* the sample's time is too close to that of a change, or behind all that was
			told */
	bool stale;  /* its source has lost events since it told so */
	bool displaced; /* by the times that were told, as they are, it was not there then */
	uint64_t since; /* ns: by those times nothing else was told of it from then on */
	const struct resolver_piece *piece; /* the resolver's own */
};

/* Everything in it is valid during the call only. */
struct attributed_sample {
	const struct sample *sample; /* its task is filled in as far as it is known */
	struct resolver_place place; /* of the sample's RIP */
	/* of resolver_place_of() */
	const struct resolver *resolver;
	const struct resolver_life *life;
};

struct resolver_options {
	size_t rings;                  /* that samples and sideband come from, numbered from 0 */
	struct guest_account *account; /* of the guest that sideband is of; outlives the resolver */
	/*
	 * ns that a record may come later than one of a later time. A source that
	 * tells SIDEBAND_ROUND is waited for until it has told of a sample's time, at most LONGEST.
	 */
	uint64_t window, longest;
	/*
	 * ns: events whose errors are not larger are in when a sample is given out, also those that
	 * come first of all.
	 */
	uint64_t reach;
	/*
	 * Does SAMPLE itself tell what was mapped at ADDRESS, in user space? Then that is neither
	 * lost nor unsure, whatever was told otherwise. May be NULL: it never does.
	 */
	bool (*tells)(void *context, const struct sample *sample, uint64_t address);
	/* Called in order of time but for what comes too late; may be NULL. Of SIDEBAND, all but
	 * rounds. */
	void (*sample)(void *context, const struct attributed_sample *sample);
	void (*sideband)(void *context, const struct sideband *record);
	void *context;
};

struct resolver_statistics {
	uint64_t samples, sideband; /* given out */
	size_t lives;               /* address spaces that are remembered, dead ones too */
	size_t waiting;             /* bytes of records that wait for their time */
	size_t memory;              /* bytes of all that is remembered */
};

int resolver_create(struct resolver **resolver,
		    const struct resolver_options *options); /* 0 or -ENOMEM */
void resolver_free(struct resolver *resolver); /* NULL is a no-op; what waits is dropped */

/* A pass over the rings begins: what is older than NOW (ns, the samples' clock) is in them, or will
 * be late.
 */
void resolver_begin_pass(struct resolver *resolver, uint64_t now);

/*
 * Take a copy of a record out of ring RING. A record that comes behind its
 * window goes out at once, and is counted; so is one for which there is no memory.
 * SAMPLE has at most SAMPLE_CALLCHAIN_MAX callers; RECORD was given by sideband_check(), or is NULL
 * for one that was refused there.
 */
void resolver_sample(struct resolver *resolver, size_t ring, const struct sample *sample);
void resolver_sideband(struct resolver *resolver, size_t ring, const struct sideband *record);

/* Ring RING is empty: all that its writer had published when the pass began was given. */
void resolver_pass_end(struct resolver *resolver, size_t ring);

/* Gives out all that is older than the window. */
void resolver_play(struct resolver *resolver);
/*
 * ns: all records of before this went out, but for those that come too late. Events may be out that
 * are of up to a second after it, as samples wait for them.
 */
uint64_t resolver_settled(const struct resolver *resolver);
/* Gives out all that there is; what comes from here on is late. */
void resolver_finish(struct resolver *resolver);

/* Where ADDRESS, a caller's, lay at the sample's time. Within the call that gives SAMPLE. */
struct resolver_place resolver_place_of(const struct attributed_sample *sample, uint64_t address);

/* Has some source told what is mapped? */
bool resolver_is_told(const struct resolver *resolver);

/* Counts of what went out so far. */
void resolver_losses(const struct resolver *resolver, struct losses *losses);
void resolver_statistics(const struct resolver *resolver, struct resolver_statistics *statistics);

#endif
