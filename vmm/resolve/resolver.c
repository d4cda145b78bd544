/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/thread_check.h"
#include "vmm/resolve/resolver_decision.h"
#include "vmm/resolve/resolver_order.h"
#include "vmm/resolve/resolver_processes.h"

/* Limit of a record's time ahead of now: guest clocks are converted, and passes take time. */
#define FUTURE_MAX (10 * NS_PER_S)
/* Bytes of records that wait; beyond it the window gets shorter. 10 kHz on 64 vCPUs make some 100
 * MB/s. */
#define WAITING_MAX (128ul << 20)

/* Larger errors are treated as this one. */
#define UNCERTAINTY_MAX NS_PER_S
/* The largest error of the present and the previous term counts. Longer than any sample waits. */
#define UNCERTAINTY_TERM (10 * NS_PER_S)

/* How far the times of recent events may be off. */
struct uncertainty {
	uint64_t now, before; /* ns, the largest error of this term and of the previous one */
	uint64_t begun;       /* ns, start of this term */
};

struct resolver {
	struct thread_check thread;
	struct resolver_options options;
	struct resolver_order order;
	struct resolver_processes processes;
	struct losses losses;
	uint64_t now;          /* when the pass began */
	uint64_t emitted;      /* everything before it was emitted in order */
	uint64_t longest_wait; /* ns that a sample waited for earlier events */
	bool *drained;         /* per ring: in this pass */
	size_t drained_count;
	struct uncertainty uncertainty;
	uint64_t
		*rounds; /* per ring, ns: its source has reported everything before; 0: no rounds */
	uint64_t reported_until; /* the earliest of the rounds; UINT64_MAX: there are none */
	/* EMITTED at the end of the pass before the last, and of the last. */
	uint64_t before_last, last;
	struct resolver_statistics statistics;
	struct resolver_mapping user[SAMPLE_CALLCHAIN_MAX]; /* of the sample that is emitted */
};

int resolver_create(struct resolver **result, const struct resolver_options *options)
{
	struct resolver *resolver = calloc(1, sizeof(*resolver));
	bool *drained = calloc(options->rings, sizeof(*drained));
	uint64_t *rounds = calloc(options->rings, sizeof(*rounds));

	if (!resolver || !drained || !rounds ||
	    resolver_order_init(&resolver->order, options->rings, options->account)) {
		free(resolver);
		free(drained);
		free(rounds);
		return error_set(-ENOMEM, "no memory for the resolver");
	}
	resolver->options = *options;
	resolver->processes.store.account = options->account;
	resolver->drained = drained;
	resolver->rounds = rounds;
	resolver->reported_until = UINT64_MAX;
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
	free(resolver->rounds);
	free(resolver);
}

void resolver_begin_pass(struct resolver *resolver, uint64_t now)
{
	THREAD_CHECK(&resolver->thread);
	resolver->now = time_later(resolver->now, now);
}

/* --- uncertainty ------------------------------------------------------------------ */

static uint64_t uncertainty_of(const struct resolver *resolver)
{
	return time_later(resolver->uncertainty.now, resolver->uncertainty.before);
}

static void update_uncertainty(struct resolver *resolver, uint64_t error)
{
	struct uncertainty *uncertainty = &resolver->uncertainty;

	if (resolver->now > uncertainty->begun + UNCERTAINTY_TERM)
		*uncertainty =
			(struct uncertainty){ .before = uncertainty->now, .begun = resolver->now };
	if (error > UNCERTAINTY_MAX)
		error = UNCERTAINTY_MAX;
	uncertainty->now = time_later(uncertainty->now, error);
}

static void emit_sample(struct resolver *resolver, struct sample *sample)
{
	const struct resolver_evidence evidence = {
		.processes = &resolver->processes,
		.images = resolver->options.images,
		.uncertainty = uncertainty_of(resolver),
		.reported_until = resolver->reported_until,
	};
	struct attributed_sample attributed =
		resolver_decide(&evidence, sample, resolver->user, &resolver->losses);

	resolver->statistics.samples++;
	if (resolver->options.sample)
		resolver->options.sample(resolver->options.context, &attributed);
}

static void emit_sideband(struct resolver *resolver, const struct sideband *record)
{
	if (resolver_processes_apply(&resolver->processes, record))
		resolver->losses.counts[LOSS_SIDEBAND_INVALID]++;
	resolver->statistics.sideband++;
	if (resolver->options.sideband)
		resolver->options.sideband(resolver->options.context, record);
}

/* --- order ------------------------------------------------------------------------ */

static void emit_first(struct resolver *resolver)
{
	const struct resolver_order_item *item = resolver_order_first(&resolver->order);
	bool is_sample = resolver_order_is_sample(item);
	void *record = item->record;
	/* Before it is emitted: that may shorten it. */
	size_t size = is_sample ? sample_length(record) : ((const struct sideband *)record)->size;

	if (is_sample)
		emit_sample(resolver, record);
	else
		emit_sideband(resolver, record);
	resolver_order_drop(&resolver->order, size);
}

/* All before TIME. */
static void emit_until(struct resolver *resolver, uint64_t time)
{
	const struct resolver_order_item *item;

	while ((item = resolver_order_first(&resolver->order)) && item->time < time)
		emit_first(resolver);
	resolver->emitted = time_later(resolver->emitted, time);
}

static void limit_memory(struct resolver *resolver)
{
	const struct resolver_order_item *item;

	if (resolver->order.bytes <= WAITING_MAX)
		return;
	while (resolver->order.bytes > WAITING_MAX / 2) {
		item = resolver_order_first(&resolver->order);
		resolver->emitted = time_later(resolver->emitted, item->time);
		emit_first(resolver);
	}
}

static bool is_in_time(const struct resolver *resolver, uint64_t time)
{
	return time >= resolver->emitted && time <= resolver->now + FUTURE_MAX;
}

static void emit_late_sample(struct resolver *resolver, const struct sample *sample)
{
	union {
		struct sample sample;
		uint8_t bytes[SAMPLE_LENGTH_MAX];
	} copy;

	assert(sample_length(sample) <= sizeof(copy));
	memcpy(&copy, sample, sample_length(sample));
	resolver->losses.counts[LOSS_SAMPLE_LATE]++;
	emit_sample(resolver, &copy.sample);
}

/* A sample waits for events that may have happened before it. */
void resolver_sample(struct resolver *resolver, size_t ring, const struct sample *sample)
{
	uint64_t uncertainty = uncertainty_of(resolver), reach = resolver->options.reach;
	uint64_t wait = uncertainty > reach ? uncertainty : reach, time = sample->time + wait;

	THREAD_CHECK(&resolver->thread);
	resolver->longest_wait = time_later(resolver->longest_wait, wait);
	assert(sample->kernel_depth + sample->user_depth <= SAMPLE_CALLCHAIN_MAX);
	if (is_in_time(resolver, time) &&
	    !resolver_order_add(&resolver->order, ring, time, true, sample, sample_length(sample)))
		limit_memory(resolver);
	else
		emit_late_sample(resolver, sample);
}

static void update_round(struct resolver *resolver, size_t ring, uint64_t time)
{
	resolver->rounds[ring] = time_later(resolver->rounds[ring], time);
	resolver->reported_until = UINT64_MAX;
	for (size_t i = 0; i < resolver->options.rings; i++)
		if (resolver->rounds[i] && resolver->rounds[i] < resolver->reported_until)
			resolver->reported_until = resolver->rounds[i];
}

/* The loss counts at once: it is reported after the events that it makes stale. */
static void update_lost(struct resolver *resolver, const struct sideband_lost *lost)
{
	resolver->losses.counts[LOSS_SIDEBAND_DROPPED] += lost->count;
	resolver->processes.lost = time_later(resolver->processes.lost, lost->until);
}

/* A loss cannot last further into the future than any record may lie ahead. */
static struct sideband_lost limit_loss(const struct resolver *resolver,
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

	THREAD_CHECK(&resolver->thread);
	if (!record || record->time > resolver->now + FUTURE_MAX) {
		resolver->losses.counts[LOSS_SIDEBAND_INVALID]++;
		return;
	}
	if (record->type == SIDEBAND_ROUND) {
		update_round(resolver, ring, record->time);
		return;
	}
	if (record->type == SIDEBAND_LOST) {
		lost = limit_loss(resolver, (const void *)record);
		record = &lost.head;
		update_lost(resolver, &lost);
		if (!is_in_time(resolver, record->time)) {
			emit_sideband(resolver,
				      record); /* everything before its time was reported */
			return;
		}
	}
	update_uncertainty(resolver, record->time_error);
	if (is_in_time(resolver, record->time) &&
	    !resolver_order_add(&resolver->order, ring, record->time, false, record,
				record->size)) {
		limit_memory(resolver);
		return;
	}
	resolver->losses.counts[LOSS_SIDEBAND_LATE]++;
	emit_sideband(resolver, record);
}

void resolver_flush(struct resolver *resolver)
{
	uint64_t window = resolver->options.window, longest = window + resolver->options.longest;
	uint64_t until = time_before(resolver->now, window);
	uint64_t oldest = time_before(resolver->now, longest);
	uint64_t reported = resolver->reported_until;

	THREAD_CHECK(&resolver->thread);
	if (reported < until)
		until = reported > oldest ? reported : oldest;
	emit_until(resolver, until);
}

uint64_t resolver_settled(const struct resolver *resolver)
{
	return resolver->emitted > resolver->longest_wait
		       ? resolver->emitted - resolver->longest_wait
		       : 0;
}

void resolver_finish(struct resolver *resolver)
{
	THREAD_CHECK(&resolver->thread);
	emit_until(resolver, UINT64_MAX);
}

/* Mappings are searched as far back before a sample's time as the sample waited after it. */
static uint64_t horizon_of(const struct resolver *resolver)
{
	uint64_t reach = 2 * uncertainty_of(resolver);

	return time_before(resolver->before_last, reach);
}

/*
 * Decides when ended processes are freed. Records that are in a ring at the end of a pass may still
 * need what was emitted by then. Each ring is emptied in the next pass, and once more, as a record
 * may be written long after its time was read.
 */
void resolver_pass_end(struct resolver *resolver, size_t ring)
{
	THREAD_CHECK(&resolver->thread);
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
	resolver->last = resolver->emitted;
}

/* Without a source of mappings nothing counts as lost in user space. */
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
	statistics->lifetimes = resolver->processes.lifetimes.kept;
	statistics->waiting = resolver->order.bytes;
	statistics->memory = resolver->processes.store.bytes;
}
