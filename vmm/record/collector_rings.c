/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_state.h"

#include "shared/clock_ns.h"

static void count_sample(struct collector_statistics *statistics, const struct sample *sample)
{
	bool host = sample->flags & SAMPLE_HOST || sample_host_depth(sample);

	if (sample->event)
		return; /* the hits of a watch and samples of time outside are counted elsewhere */
	statistics->samples++;
	statistics->host += host;
	statistics->kernel += !sample->cpl && !host;
	statistics->cost += sample->cost;
	statistics->weight += sample->period;
}

static void read_sample(struct collector *collector, size_t ring, const struct ring_record *record,
			struct collector_statistics *counts)
{
	const struct sample *sampled =
		collector_sample(record, collector->options.output.vcpus,
				 perf_data_watches_count(collector->options.output.watches));
	_Alignas(struct sample) uint8_t room[DEFERRED_LOOKUP_SIZE];
	const struct sample *sample;

	if (!sampled)
		return;
	sample = collector_user_complete(&collector->kernel, sampled, (struct sample *)room);
	if (sample != sampled && collector->flight)
		flight_complete(collector->flight, ring, sample);
	collector->last_time[sample->vcpu] = sample->time;
	count_sample(counts, sample);
	collector_jit_sample(&collector->jit, collector_kernel_newest(&collector->kernel), sample);
	resolver_sample(collector->resolver, ring, sample);
}

/* NULL: it was invalid. */
static void pass_sideband(struct collector *collector, size_t ring, const struct sideband *sideband)
{
	if (sideband && collector_jit_apply(&collector->jit, sideband))
		return;
	resolver_sideband(collector->resolver, ring, sideband);
	if (sideband && sideband->type == SIDEBAND_MMAP && collector->options.mapped)
		collector->options.mapped(collector->options.context, (const void *)sideband);
	if (collector->flight && sideband)
		flight_sideband(collector->flight, sideband);
}

static void read_sideband(struct collector *collector, size_t ring,
			  const struct ring_record *record)
{
	pass_sideband(collector, ring,
		      sideband_check(span_of(record->payload, record->size - sizeof(*record))));
}

static void read_event(struct collector *collector, const struct ring_record *record)
{
	const struct sample_event *event =
		collector_event(record, collector->options.output.vcpus,
				perf_data_watches_count(collector->options.output.watches));

	if (event && collector_is_writing(collector))
		collector_note_error(collector,
				     perf_data_writer_event(collector->output.writer, event));
}

static void read_guest_lost(struct collector *collector, const struct ring_record *record)
{
	const struct sample_guest_breakpoint_lost *lost =
		collector_guest_lost(record, collector->options.output.vcpus);

	collector->guest_lost += lost ? lost->count : 0;
}

static void count_lost(struct collector *collector, size_t ring, uint64_t count,
		       struct collector_statistics *counts)
{
	uint32_t vcpu = (uint32_t)(ring % collector->options.output.vcpus);

	counts->lost += count;
	if (collector_is_writing(collector))
		collector_note_error(collector, perf_data_writer_lost(collector->output.writer,
								      collector->last_time[vcpu],
								      vcpu, count));
}

/* Samples that RING dropped, as it was full. */
static void read_lost(struct collector *collector, size_t ring, const struct ring_record *record,
		      struct collector_statistics *counts)
{
	const struct ring_lost *lost = (const void *)record->payload;

	if (record->size < sizeof(*record) + sizeof(*lost))
		return;
	collector->lost[ring] += lost->count;
	count_lost(collector, ring, lost->count, counts);
}

/* Samples that their source lost before they reached RING. */
static void read_lost_before(struct collector *collector, size_t ring,
			     const struct ring_record *record, struct collector_statistics *counts)
{
	const struct sample_lost *lost = (const void *)record->payload;

	if (record->size < sizeof(*record) + sizeof(*lost))
		return;
	collector->lost_before += lost->count;
	count_lost(collector, ring, lost->count, counts);
}

/* Releases the space of the previous record first: while a writer keeps up with the collector, the
 * ring is never read to its end, and would be full of records that were read long ago. */
static const struct ring_record *read_ring(struct collector *collector, struct ring *ring)
{
	const struct ring_record *record;

	ring_read_done(ring);
	record = ring_read(ring);
	collector->received |= !!record;
	return record;
}

static void drain_ring(struct collector *collector, size_t index,
		       struct collector_statistics *counts)
{
	struct ring *ring = collector->options.rings[index];
	const struct ring_record *record;

	while ((record = read_ring(collector, ring))) {
		if (record->type == RECORD_SAMPLE)
			read_sample(collector, index, record, counts);
		else if (record->type == RECORD_SIDEBAND)
			read_sideband(collector, index, record);
		else if (record->type == RECORD_EVENT)
			read_event(collector, record);
		else if (record->type == RECORD_GUEST_BREAKPOINT_LOST)
			read_guest_lost(collector, record);
		else if (record->type == RING_RECORD_LOST)
			read_lost(collector, index, record, counts);
		else if (record->type == RECORD_LOST)
			read_lost_before(collector, index, record, counts);
	}
	ring_read_done(ring);
	resolver_pass_end(collector->resolver, index);
}

/* The time of the loss is unknown, so every report since the last settled time is stale. */
static void report_sideband_lost(struct collector *collector, size_t ring, uint64_t count)
{
	const struct sideband_lost lost = {
		.head = { .size = sizeof(lost),
			  .type = SIDEBAND_LOST,
			  .time = resolver_settled(collector->resolver) },
		.count = count,
		.until = clock_ns(CLOCK_MONOTONIC_RAW),
	};

	pass_sideband(collector, ring, &lost.head);
}

/* A ring that stays full has no record of its losses. */
static void check_sideband_losses(struct collector *collector, size_t index)
{
	uint64_t *known = &collector->sideband_lost[index];
	struct ring_statistics ring;

	ring_statistics(collector->options.sideband_rings[index], &ring);
	if (ring.lost > *known)
		report_sideband_lost(collector, collector->options.ring_count + index,
				     ring.lost - *known);
	*known = ring.lost;
}

static void drain_sideband_ring(struct collector *collector, size_t index)
{
	struct ring *ring = collector->options.sideband_rings[index];
	size_t number = collector->options.ring_count + index;
	const struct ring_record *record;

	while ((record = read_ring(collector, ring)))
		if (record->type == RECORD_SIDEBAND)
			read_sideband(collector, number, record);
	ring_read_done(ring);
	check_sideband_losses(collector, index);
	resolver_pass_end(collector->resolver, number);
}

void collector_rings_read(struct collector *collector, struct collector_statistics *counts)
{
	THREAD_CHECK(&collector->owner);
	for (size_t i = 0; i < collector->options.ring_count; i++)
		drain_ring(collector, i, counts);
	for (size_t i = 0; i < collector->options.sideband_ring_count; i++)
		drain_sideband_ring(collector, i);
}

void collector_rings_read_last_losses(struct collector *collector,
				      struct collector_statistics *counts)
{
	THREAD_CHECK(&collector->owner);
	for (size_t i = 0; i < collector->options.ring_count; i++) {
		struct ring_statistics ring;

		ring_statistics(collector->options.rings[i], &ring);
		if (ring.lost <= collector->lost[i])
			continue;
		count_lost(collector, i, ring.lost - collector->lost[i], counts);
		collector->lost[i] = ring.lost;
	}
}
