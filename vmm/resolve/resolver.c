// SPDX-License-Identifier: Apache-2.0
#include "vmm/resolve/resolver.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/resolve/resolver_order.h"
#include "vmm/resolve/resolver_processes.h"

/* So far behind now may a record's time lie: clocks of guests are converted, and a pass may take
 * its time. */
#define FUTURE_MAX (10 * NS_PER_S)
/* More than this of samples does not wait: the window gets shorter. 10 kHz on 64 vCPUs is some 100
 * MB/s. */
#define WAITING_MAX (128ul << 20)
#define HIGH_HALF   (1ull << 63)

/* Events that are less sure than this are taken as if they were as sure. */
#define UNCERTAINTY_MAX NS_PER_S
/* The largest error of one or two such terms back is that of all. It is more than a sample waits.
 */
#define UNCERTAINTY_TERM (10 * NS_PER_S)

/* How far the times of events may be from the truth. */
struct uncertainty {
	uint64_t now, before; /* ns, the largest error of this term and of the last one */
	uint64_t begun;       /* this term */
};

struct resolver {
	struct resolver_options options;
	struct resolver_order order;
	struct resolver_processes processes;
	struct losses losses;
	uint64_t now;          /* when the pass began */
	uint64_t played;       /* up to this time all went out in order */
	uint64_t longest_wait; /* ns, of a sample for what may have been before it */
	bool *drained;         /* for each ring: in this pass */
	size_t drained_count;
	struct uncertainty uncertainty;
	uint64_t *told; /* for each ring: its source has told of all before this; 0: it tells no
			   rounds */
	uint64_t told_by_all; /* of those sources; UINT64_MAX: there is none */
	uint64_t before_last,
		last; /* PLAYED at the end of the pass before the last one, and of that */
	struct resolver_statistics statistics;
};

int resolver_create(struct resolver **result, const struct resolver_options *options)
{
	struct resolver *resolver = calloc(1, sizeof(*resolver));
	bool *drained = calloc(options->rings, sizeof(*drained));
	uint64_t *told = calloc(options->rings, sizeof(*told));

	if (!resolver || !drained || !told ||
	    resolver_order_init(&resolver->order, options->rings, options->account)) {
		free(resolver);
		free(drained);
		free(told);
		return error_set(-ENOMEM, "no memory for the resolver");
	}
	resolver->options = *options;
	resolver->processes.store.account = options->account;
	resolver->drained = drained;
	resolver->told = told;
	resolver->told_by_all = UINT64_MAX;
	*result = resolver;
	return 0;
}

void resolver_free(struct resolver *resolver)
{
	if (!resolver)
		return;
	resolver_order_free(&resolver->order);
	resolver_processes_free(&resolver->processes);
	free(resolver->drained);
	free(resolver->told);
	free(resolver);
}

void resolver_begin_pass(struct resolver *resolver, uint64_t now)
{
	if (now > resolver->now)
		resolver->now = now;
}

/* Uncertainty. */

static uint64_t uncertainty_of(const struct resolver *resolver)
{
	const struct uncertainty *uncertainty = &resolver->uncertainty;

	return uncertainty->now > uncertainty->before ? uncertainty->now : uncertainty->before;
}

static void note_uncertainty(struct resolver *resolver, uint64_t error)
{
	struct uncertainty *uncertainty = &resolver->uncertainty;

	if (resolver->now > uncertainty->begun + UNCERTAINTY_TERM)
		*uncertainty =
			(struct uncertainty){ .before = uncertainty->now, .begun = resolver->now };
	if (error > UNCERTAINTY_MAX)
		error = UNCERTAINTY_MAX;
	if (error > uncertainty->now)
		uncertainty->now = error;
}

/* Attribution. */

/* Else a source may still have told of something before TIME, but is not waited for any longer. */
static bool is_told_of(const struct resolver *resolver, uint64_t time)
{
	return time + uncertainty_of(resolver) < resolver->told_by_all;
}

/*
 * In the kernel CR3 does not tell the task: a kernel thread runs on the page
 * tables of whoever ran before it (lazy TLB, Documentation/mm/active_mm.rst).
 */
static struct resolver_life *life_of(const struct resolver *resolver, const struct sample *sample)
{
	uint64_t uncertainty = uncertainty_of(resolver);
	struct resolver_life *life;

	if (sample->flags & (SAMPLE_OTHER_KERNEL | SAMPLE_HOST))
		return NULL; /* processes are known of the one that is known, and of the guest */
	if (sample->pid == SAMPLE_TASK_UNKNOWN)
		return sample->cpl
			       ? resolver_lives_find_root(&resolver->processes.lives, sample->cr3,
							  sample->time, resolver->processes.lost)
			       : NULL;
	/* The latest one that may have begun by then. */
	life = resolver_lives_latest(&resolver->processes.lives, sample->pid,
				     sample->time + uncertainty);
	while (life && life->born > sample->time + life->born_error)
		life = life->older;
	if (life && life->died != UINT64_MAX && sample->time >= life->died + uncertainty)
		return NULL;
	return life;
}

static struct resolver_place place_in(const struct resolver_piece *piece, uint64_t address)
{
	if (!piece)
		return (struct resolver_place){ 0 };
	return (struct resolver_place){
		.image = piece->image,
		.offset = address - piece->start + piece->offset,
		.since = piece->from,
		.piece = piece,
	};
}

/* Readers of the file go by the times that stand there, right or not. */
static struct resolver_place place_in_life(const struct resolver_life *life,
					   const struct resolver_piece *piece, uint64_t address,
					   uint64_t time)
{
	struct resolver_place place = place_in(piece, address);

	place.displaced =
		piece && (piece->from > time || piece->until <= time || life->born > time ||
			  (life->newer && life->newer->born <= time));
	return place;
}

/* What one of two lives says, and the other does not, is not sure. */
static void join_places(struct resolver_place *place, const struct resolver_place *other)
{
	if (!other->image)
		return;
	if (place->image && (place->image != other->image || place->offset != other->offset))
		place->unsure = true;
	else
		*place = *other;
}

/*
 * Where the process's ADDRESS lay at any moment that may have been TIME. Code
 * runs where something is mapped: if there is one thing only that was, it is that.
 */
static struct resolver_place place_about(const struct resolver_life *life, uint64_t address,
					 uint64_t time)
{
	struct resolver_place place = { 0 };
	bool several = false;

	for (; life && !several && !place.unsure; life = life->older) {
		const struct resolver_piece *piece =
			resolver_space_find_about(&life->space, address, time, &several);
		struct resolver_place found = place_in_life(life, piece, address, time);

		join_places(&place, &found);
		if (life->born + life->born_error <= time)
			break; /* nothing older was left */
	}
	if (several || place.unsure)
		return (struct resolver_place){ .unsure = true };
	return place;
}

/* Where something was lost, it may be that what was there before PIECE began, too. */
static bool is_stale(const struct resolver_piece *piece, uint64_t lost, uint64_t time)
{
	return piece->from <= lost || piece->from + piece->from_error > time;
}

static struct resolver_place place_in_user_space(const struct resolver *resolver,
						 const struct resolver_life *life, uint64_t address,
						 uint64_t time)
{
	struct resolver_place place = { 0 };

	if (life && !is_told_of(resolver, time))
		return (struct resolver_place){ .unsure = true };
	if (uncertainty_of(resolver))
		place = place_about(life, address, time);
	else if (life)
		place = place_in_life(life, resolver_space_find(&life->space, address, time),
				      address, time);
	place.stale = place.image && resolver->processes.lost &&
		      is_stale(place.piece, resolver->processes.lost, time);
	if (!place.piece && life)
		place.since = life->born;
	return place;
}

static struct resolver_place place_at(const struct resolver *resolver,
				      const struct resolver_life *life, uint64_t address,
				      uint64_t time)
{
	const struct resolver_space *kernel = &resolver->processes.kernel;

	if (address & HIGH_HALF)
		return place_in(resolver_space_find(kernel, address, time), address);
	return place_in_user_space(resolver, life, address, time);
}

struct resolver_place resolver_place_of(const struct attributed_sample *sample, uint64_t address)
{
	return place_at(sample->resolver, sample->life, address, sample->sample->time);
}

static bool tells(const struct resolver *resolver, const struct sample *sample, uint64_t address)
{
	return resolver->options.tells && sample->mappings &&
	       resolver->options.tells(resolver->options.context, sample, address);
}

/* Was all of PIECE there at any moment that may have been the sample's time? Then its other
 * addresses were, too. */
static bool is_sure_of(const struct attributed_sample *attributed,
		       const struct resolver_piece *piece)
{
	uint64_t uncertainty = uncertainty_of(attributed->resolver),
		 time = attributed->sample->time;
	uint64_t from = time > uncertainty ? time - uncertainty : 0;

	return piece && attributed->life && attributed->life->born <= from && piece->from <= from &&
	       piece->until > time + uncertainty;
}

/* Where a caller lay: mostly in the piece that the one before it lay in, *LAST. */
static struct resolver_place place_of_caller(const struct attributed_sample *attributed,
					     uint64_t address, const struct resolver_piece **last)
{
	struct resolver_place place;

	if (*last && address >= (*last)->start && address < (*last)->end)
		return place_in(*last, address);
	if (address & HIGH_HALF)
		return (struct resolver_place){ 0 };
	place = resolver_place_of(attributed, address);
	*last = is_sure_of(attributed, place.piece) ? place.piece : NULL;
	return place;
}

/* Who reads the file would guess: the callchain ends before the first address of which it is not
 * sure. */
static void cut_callchain(struct sample *sample, size_t depth)
{
	const uint8_t *end = (const uint8_t *)sample + sample_length(sample);
	const uint8_t *behind = (const uint8_t *)sample_mappings(sample);

	sample->user_depth = (uint16_t)(depth - sample->kernel_depth);
	sample->flags |= SAMPLE_USER_TRUNCATED;
	memmove(sample_write_mappings(sample), behind, (size_t)(end - behind));
}

/* The first address of all is the sample's own. */
static void look_up_callchain(struct resolver *resolver, const struct attributed_sample *attributed,
			      struct sample *sample)
{
	size_t end = (size_t)sample->kernel_depth + sample->user_depth;
	const struct resolver_piece *last =
		is_sure_of(attributed, attributed->place.piece) ? attributed->place.piece : NULL;
	uint64_t *counts = resolver->losses.counts;

	for (size_t i = sample->kernel_depth; i < end; i++) {
		struct resolver_place place =
			i ? place_of_caller(attributed, sample->callchain[i], &last)
			  : attributed->place;

		if (place.image && !place.stale)
			continue;
		if (tells(resolver, sample, sample->callchain[i]))
			continue;
		if (place.unsure) {
			cut_callchain(sample, i);
			break;
		}
		counts[LOSS_CALLCHAIN_NO_MAPPING] += !!i;
	}
	if (sample->flags & (SAMPLE_KERNEL_TRUNCATED | SAMPLE_USER_TRUNCATED))
		counts[LOSS_CALLCHAIN_TRUNCATED]++;
}

/* What a sample tells of itself is not lost. */
static void count_losses(struct resolver *resolver, const struct attributed_sample *attributed)
{
	const struct resolver_place *place = &attributed->place;
	const struct sample *sample = attributed->sample;
	uint64_t *counts = resolver->losses.counts;

	if (sample->flags & SAMPLE_HOST)
		return;
	counts[LOSS_LOOKUP_INCOMPLETE] += !!(sample->flags & SAMPLE_LOOKUP_INCOMPLETE);
	if (sample->flags & SAMPLE_OTHER_KERNEL)
		counts[LOSS_OTHER_KERNEL]++;
	else if (!sample->cpl || (place->image && !place->stale) ||
		 tells(resolver, sample, sample->rip))
		return;
	else if (!attributed->life)
		counts[LOSS_NO_ADDRESS_SPACE]++;
	else if (place->unsure)
		counts[LOSS_UNCERTAIN]++;
	else
		counts[LOSS_NO_MAPPING]++;
}

static void name_task(const struct resolver *resolver, const struct resolver_life *life,
		      struct sample *sample)
{
	struct resolver_name name;

	if (sample->pid == SAMPLE_TASK_UNKNOWN && life)
		sample->pid = sample->tid = life->process->pid;
	if (*sample->comm || sample->tid == SAMPLE_TASK_UNKNOWN)
		return;
	name = resolver_threads_name_of(&resolver->processes.threads, sample->tid, sample->time);
	if (!resolver->processes.lost || name.told > resolver->processes.lost)
		snprintf(sample->comm, sizeof(sample->comm), "%s", name.comm);
}

static void give_sample(struct resolver *resolver, struct sample *sample)
{
	struct attributed_sample attributed = {
		.sample = sample,
		.resolver = resolver,
		.life = life_of(resolver, sample),
	};

	name_task(resolver, attributed.life, sample);
	attributed.place = place_at(resolver, attributed.life, sample->rip, sample->time);
	if (sample->cpl && attributed.place.unsure && !tells(resolver, sample, sample->rip))
		sample->flags |= SAMPLE_UNCERTAIN;
	count_losses(resolver, &attributed);
	look_up_callchain(resolver, &attributed, sample);
	resolver->statistics.samples++;
	if (resolver->options.sample)
		resolver->options.sample(resolver->options.context, &attributed);
}

static void give_sideband(struct resolver *resolver, const struct sideband *record)
{
	if (resolver_processes_take(&resolver->processes, record))
		resolver->losses.counts[LOSS_SIDEBAND_INVALID]++;
	resolver->statistics.sideband++;
	if (resolver->options.sideband)
		resolver->options.sideband(resolver->options.context, record);
}

/* Order. */

static void play_first(struct resolver *resolver)
{
	const struct resolver_order_item *item = resolver_order_first(&resolver->order);
	bool is_sample = resolver_order_is_sample(item);
	void *record = item->record;
	/* Before it is given out: that may shorten it. */
	size_t size = is_sample ? sample_length(record) : ((const struct sideband *)record)->size;

	if (is_sample)
		give_sample(resolver, record);
	else
		give_sideband(resolver, record);
	resolver_order_drop(&resolver->order, size);
}

/* All before TIME. */
static void play_until(struct resolver *resolver, uint64_t time)
{
	const struct resolver_order_item *item;

	while ((item = resolver_order_first(&resolver->order)) && item->time < time)
		play_first(resolver);
	if (time > resolver->played)
		resolver->played = time;
}

static void make_room(struct resolver *resolver)
{
	const struct resolver_order_item *item;

	if (resolver->order.bytes <= WAITING_MAX)
		return;
	while (resolver->order.bytes > WAITING_MAX / 2) {
		item = resolver_order_first(&resolver->order);
		if (item->time > resolver->played)
			resolver->played = item->time;
		play_first(resolver);
	}
}

static bool is_in_time(const struct resolver *resolver, uint64_t time)
{
	return time >= resolver->played && time <= resolver->now + FUTURE_MAX;
}

static void give_late_sample(struct resolver *resolver, const struct sample *sample)
{
	union {
		struct sample sample;
		uint8_t bytes[SAMPLE_LENGTH_MAX];
	} copy;

	assert(sample_length(sample) <= sizeof(copy));
	memcpy(&copy, sample, sample_length(sample));
	resolver->losses.counts[LOSS_SAMPLE_LATE]++;
	give_sample(resolver, &copy.sample);
}

/* A sample waits for what may have been before it. */
void resolver_sample(struct resolver *resolver, size_t ring, const struct sample *sample)
{
	uint64_t uncertainty = uncertainty_of(resolver), reach = resolver->options.reach;
	uint64_t wait = uncertainty > reach ? uncertainty : reach, time = sample->time + wait;

	if (wait > resolver->longest_wait)
		resolver->longest_wait = wait;
	assert(sample->kernel_depth + sample->user_depth <= SAMPLE_CALLCHAIN_MAX);
	if (is_in_time(resolver, time) &&
	    !resolver_order_add(&resolver->order, ring, time, true, sample, sample_length(sample)))
		make_room(resolver);
	else
		give_late_sample(resolver, sample);
}

static void note_round(struct resolver *resolver, size_t ring, uint64_t time)
{
	if (time > resolver->told[ring])
		resolver->told[ring] = time;
	resolver->told_by_all = UINT64_MAX;
	for (size_t i = 0; i < resolver->options.rings; i++)
		if (resolver->told[i] && resolver->told[i] < resolver->told_by_all)
			resolver->told_by_all = resolver->told[i];
}

/* Told behind all that came before: what waits for its time may be wrong already. */
static void note_lost(struct resolver *resolver, const struct sideband_lost *lost)
{
	resolver->losses.counts[LOSS_SIDEBAND_DROPPED] += lost->count;
	if (lost->until > resolver->processes.lost)
		resolver->processes.lost = lost->until;
}

/* Who says that a loss goes on for longer than any time may lie ahead is believed for so long. */
static struct sideband_lost limited(const struct resolver *resolver,
				    const struct sideband_lost *lost)
{
	uint64_t latest = resolver->now + FUTURE_MAX;

	return (struct sideband_lost){
		.head = { .size = sizeof(*lost),
			  .type = SIDEBAND_LOST,
			  .time_error = lost->head.time_error,
			  .time = lost->head.time },
		.count = lost->count,
		.until = lost->until < latest ? lost->until : latest,
	};
}

void resolver_sideband(struct resolver *resolver, size_t ring, const struct sideband *record)
{
	struct sideband_lost lost;

	if (!record || record->time > resolver->now + FUTURE_MAX) {
		resolver->losses.counts[LOSS_SIDEBAND_INVALID]++;
		return;
	}
	if (record->type == SIDEBAND_ROUND) {
		note_round(resolver, ring, record->time);
		return;
	}
	if (record->type == SIDEBAND_LOST) {
		lost = limited(resolver, (const void *)record);
		record = &lost.head;
		note_lost(resolver, &lost);
		if (!is_in_time(resolver, record->time)) {
			give_sideband(resolver,
				      record); /* its time is that before which all was told */
			return;
		}
	}
	note_uncertainty(resolver, record->time_error);
	if (is_in_time(resolver, record->time) &&
	    !resolver_order_add(&resolver->order, ring, record->time, false, record,
				record->size)) {
		make_room(resolver);
		return;
	}
	resolver->losses.counts[LOSS_SIDEBAND_LATE]++;
	give_sideband(resolver, record);
}

void resolver_play(struct resolver *resolver)
{
	uint64_t window = resolver->options.window, longest = window + resolver->options.longest;
	uint64_t until = resolver->now > window ? resolver->now - window : 0;
	uint64_t oldest = resolver->now > longest ? resolver->now - longest : 0;
	uint64_t told = resolver->told_by_all;

	if (told < until)
		until = told > oldest ? told : oldest;
	play_until(resolver, until);
}

uint64_t resolver_settled(const struct resolver *resolver)
{
	return resolver->played > resolver->longest_wait ? resolver->played - resolver->longest_wait
							 : 0;
}

void resolver_finish(struct resolver *resolver)
{
	play_until(resolver, UINT64_MAX);
}

/* A sample asks for as much before its time as it waited for behind it. */
static uint64_t horizon_of(const struct resolver *resolver)
{
	uint64_t reach = 2 * uncertainty_of(resolver);

	return resolver->before_last > reach ? resolver->before_last - reach : 0;
}

/*
 * The mortuary's clock. What was given out by the end of a pass may still be
 * asked for by what stands in a ring by then; each ring is emptied in the pass
 * behind it, and once more, as a record may be written long after its time was taken.
 */
void resolver_pass_end(struct resolver *resolver, size_t ring)
{
	assert(ring < resolver->options.rings);
	resolver->drained_count += !resolver->drained[ring];
	resolver->drained[ring] = true;
	if (resolver->drained_count < resolver->options.rings)
		return;
	for (size_t i = 0; i < resolver->options.rings; i++)
		resolver->drained[i] = false;
	resolver->drained_count = 0;
	resolver_processes_forget(&resolver->processes, horizon_of(resolver));
	resolver->before_last = resolver->last;
	resolver->last = resolver->played;
}

bool resolver_is_told(const struct resolver *resolver)
{
	return resolver->processes.mappings_known;
}

/* Where no source tells of mappings, user space is not lost: it was never asked for. */
void resolver_losses(const struct resolver *resolver, struct losses *losses)
{
	*losses = resolver->losses;
	if (resolver->processes.mappings_known)
		return;
	losses->counts[LOSS_NO_ADDRESS_SPACE] = 0;
	losses->counts[LOSS_NO_MAPPING] = 0;
	losses->counts[LOSS_CALLCHAIN_NO_MAPPING] = 0;
}

void resolver_statistics(const struct resolver *resolver, struct resolver_statistics *statistics)
{
	*statistics = resolver->statistics;
	statistics->lives = resolver->processes.lives.kept;
	statistics->waiting = resolver->order.bytes;
	statistics->memory = resolver->processes.store.bytes;
}
