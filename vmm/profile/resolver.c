// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/resolver.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/profile/resolver_order.h"
#include "vmm/profile/resolver_processes.h"

/* So far behind now may a record's time lie: clocks of guests are converted, and a pass may take its time. */
#define FUTURE_MAX 10000000000ull
/* More than this does not wait: the window gets shorter. 10 kHz on 64 vCPUs is some 100 MB/s. */
#define WAITING_MAX (128ul << 20)
#define HIGH_HALF   (1ull << 63)

struct resolver {
	struct resolver_options options;
	struct resolver_order order;
	struct resolver_processes processes;
	struct losses losses;
	uint64_t now;    /* when the pass began */
	uint64_t played; /* up to this time all went out in order */
	bool *drained;   /* for each ring: in this pass */
	size_t drained_count;
	uint64_t before_last, last; /* PLAYED at the end of the pass before the last one, and of that */
	struct resolver_statistics statistics;
};

int resolver_create(struct resolver **result, const struct resolver_options *options)
{
	struct resolver *resolver = calloc(1, sizeof(*resolver));
	bool *drained = calloc(options->rings, sizeof(*drained));

	if (!resolver || !drained || resolver_order_init(&resolver->order, options->rings)) {
		free(resolver);
		free(drained);
		return error_set(-ENOMEM, "no memory for the resolver");
	}
	resolver->options = *options;
	resolver->drained = drained;
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
	free(resolver);
}

void resolver_begin_pass(struct resolver *resolver, uint64_t now)
{
	if (now > resolver->now)
		resolver->now = now;
}

/* Attribution. */

/*
 * In the kernel CR3 does not tell the task: a kernel thread runs on the page
 * tables of whoever ran before it (lazy TLB, Documentation/mm/active_mm.rst).
 */
static struct resolver_life *life_of(const struct resolver *resolver, const struct sample *sample)
{
	if (sample->pid != SAMPLE_TASK_UNKNOWN)
		return resolver_lives_find(&resolver->processes.lives, sample->pid, sample->time);
	return sample->cpl ? resolver_lives_find_root(&resolver->processes.lives, sample->cr3, sample->time)
			   : NULL;
}

static struct resolver_place place_at(const struct resolver *resolver, const struct resolver_life *life,
				      uint64_t address, uint64_t time)
{
	const struct resolver_space *space = address & HIGH_HALF ? &resolver->processes.kernel
					     : life              ? &life->space
								 : NULL;
	const struct resolver_piece *piece = space ? resolver_space_find(space, address, time) : NULL;

	if (!piece)
		return (struct resolver_place){ 0 };
	return (struct resolver_place){ piece->image, address - piece->start + piece->offset };
}

struct resolver_place resolver_place_of(const struct attributed_sample *sample, uint64_t address)
{
	return place_at(sample->resolver, sample->life, address, sample->sample->time);
}

/* Is something mapped at a caller's ADDRESS? Mostly it is what the caller before it, *LAST, lies in. */
static bool is_mapped(const struct attributed_sample *attributed, uint64_t address,
		      const struct resolver_piece **last)
{
	if (*last && address >= (*last)->start && address < (*last)->end)
		return true;
	*last = attributed->life && !(address & HIGH_HALF)
			? resolver_space_find(&attributed->life->space, address, attributed->sample->time)
			: NULL;
	return *last;
}

static void count_callchain(struct resolver *resolver, const struct attributed_sample *attributed)
{
	const struct sample *sample = attributed->sample;
	size_t first = sample->kernel_depth, end = first + sample->user_depth;
	uint64_t *counts = resolver->losses.counts;
	const struct resolver_piece *last = NULL;

	if (sample->flags & (SAMPLE_KERNEL_TRUNCATED | SAMPLE_USER_TRUNCATED))
		counts[CALLCHAIN_TRUNCATED]++;
	/* The first address of all is the sample's own. */
	for (size_t i = first ? first : 1; i < end; i++)
		counts[CALLCHAIN_NO_MAPPING] += !is_mapped(attributed, sample->callchain[i], &last);
}

static void count_losses(struct resolver *resolver, const struct attributed_sample *attributed)
{
	uint64_t *counts = resolver->losses.counts;

	if (attributed->sample->cpl && !attributed->life)
		counts[LOST_NO_ADDRESS_SPACE]++;
	else if (attributed->sample->cpl && !attributed->place.image)
		counts[LOST_NO_MAPPING]++;
	count_callchain(resolver, attributed);
}

static void name_task(const struct resolver *resolver, const struct resolver_life *life,
		      struct sample *sample)
{
	const char *comm;

	if (sample->pid == SAMPLE_TASK_UNKNOWN && life)
		sample->pid = sample->tid = life->process->pid;
	if (*sample->comm || sample->tid == SAMPLE_TASK_UNKNOWN)
		return;
	comm = resolver_threads_comm(&resolver->processes.threads, sample->tid, sample->time);
	snprintf(sample->comm, sizeof(sample->comm), "%s", comm);
}

static void give_sample(struct resolver *resolver, struct sample *sample)
{
	struct attributed_sample attributed = {
		.sample = sample,
		.resolver = resolver,
		.life = life_of(resolver, sample),
	};

	name_task(resolver, attributed.life, sample);
	if (attributed.life && attributed.life->program_time <= sample->time)
		attributed.program = attributed.life->program;
	attributed.place = place_at(resolver, attributed.life, sample->rip, sample->time);
	count_losses(resolver, &attributed);
	resolver->statistics.samples++;
	if (resolver->options.sample)
		resolver->options.sample(resolver->options.context, &attributed);
}

static void give_sideband(struct resolver *resolver, const struct sideband *record)
{
	uint64_t *counts = resolver->losses.counts;

	if (record->type == SIDEBAND_LOST)
		counts[SIDEBAND_MISSED] += ((const struct sideband_lost *)record)->count;
	if (resolver_processes_take(&resolver->processes, record))
		counts[SIDEBAND_REFUSED]++;
	resolver->statistics.sideband++;
	if (resolver->options.sideband)
		resolver->options.sideband(resolver->options.context, record);
}

/* Order. */

static size_t size_of(const struct sample *sample)
{
	return sample_length(sample);
}

static void play_first(struct resolver *resolver)
{
	const struct resolver_order_item *item = resolver_order_first(&resolver->order);
	bool is_sample = resolver_order_is_sample(item);
	void *record = item->record;

	if (is_sample)
		give_sample(resolver, record);
	else
		give_sideband(resolver, record);
	resolver_order_drop(&resolver->order,
			    is_sample ? size_of(record) : ((const struct sideband *)record)->size);
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
		uint8_t bytes[sizeof(struct sample) + SAMPLE_CALLCHAIN_MAX * sizeof(uint64_t)];
	} copy;

	memcpy(&copy, sample, size_of(sample));
	resolver->losses.counts[SAMPLE_OUT_OF_ORDER]++;
	give_sample(resolver, &copy.sample);
}

void resolver_sample(struct resolver *resolver, size_t ring, const struct sample *sample)
{
	assert(sample->kernel_depth + sample->user_depth <= SAMPLE_CALLCHAIN_MAX);
	if (is_in_time(resolver, sample->time) &&
	    !resolver_order_add(&resolver->order, ring, sample->time, true, sample, size_of(sample)))
		make_room(resolver);
	else
		give_late_sample(resolver, sample);
}

void resolver_sideband(struct resolver *resolver, size_t ring, const struct sideband *record)
{
	if (!record || record->time > resolver->now + FUTURE_MAX) {
		resolver->losses.counts[SIDEBAND_REFUSED]++;
		return;
	}
	if (is_in_time(resolver, record->time) &&
	    !resolver_order_add(&resolver->order, ring, record->time, false, record, record->size)) {
		make_room(resolver);
		return;
	}
	resolver->losses.counts[SIDEBAND_LATE]++;
	give_sideband(resolver, record);
}

void resolver_play(struct resolver *resolver)
{
	if (resolver->now > resolver->options.window)
		play_until(resolver, resolver->now - resolver->options.window);
}

void resolver_finish(struct resolver *resolver)
{
	play_until(resolver, UINT64_MAX);
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
	resolver_processes_forget(&resolver->processes, resolver->before_last);
	resolver->before_last = resolver->last;
	resolver->last = resolver->played;
}

uint64_t resolver_played(const struct resolver *resolver)
{
	return resolver->played;
}

/* Where no source tells of mappings, user space is not lost: it was never asked for. */
void resolver_losses(const struct resolver *resolver, struct losses *losses)
{
	*losses = resolver->losses;
	if (resolver->processes.mappings_known)
		return;
	losses->counts[LOST_NO_ADDRESS_SPACE] = 0;
	losses->counts[LOST_NO_MAPPING] = 0;
	losses->counts[CALLCHAIN_NO_MAPPING] = 0;
}

void resolver_statistics(const struct resolver *resolver, struct resolver_statistics *statistics)
{
	*statistics = resolver->statistics;
	statistics->lives = resolver->processes.lives.kept;
	statistics->waiting = resolver->order.bytes;
	statistics->memory = resolver->processes.store.bytes;
}
