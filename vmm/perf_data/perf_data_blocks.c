/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_blocks.h"

#include <stddef.h>
#include <string.h>

#define VERSION 1

/* The flight block starts with this; the triggers follow. */
struct head {
	uint32_t version;
	uint32_t count;        /* of triggers */
	uint32_t trigger_size; /* bytes of each, which may grow at its end */
	uint32_t reserved;
	uint64_t from, to, complete, missed;
};

_Static_assert(sizeof(struct head) == 48 && sizeof(struct perf_data_flight_trigger) == 224,
	       "docs/perf-data.md");

void perf_data_flight_add(struct bytes *to, const struct perf_data_flight *flight)
{
	struct head head = {
		.version = VERSION,
		.count = flight->count,
		.trigger_size = sizeof(flight->triggers[0]),
		.from = flight->from,
		.to = flight->to,
		.complete = flight->complete,
		.missed = flight->missed,
	};

	bytes_add(to, &head, sizeof(head));
	bytes_add(to, flight->triggers, flight->count * sizeof(flight->triggers[0]));
}

static bool parse_trigger(struct perf_data_flight_trigger *trigger, struct span content,
			  uint64_t offset)
{
	if (!span_copy(content, offset, trigger, sizeof(*trigger)))
		return false;
	trigger->kind[sizeof(trigger->kind) - 1] = '\0';
	trigger->detail[sizeof(trigger->detail) - 1] = '\0';
	return true;
}

bool perf_data_flight_parse(struct perf_data_flight *flight, struct span content)
{
	struct perf_data_flight parsed;
	struct head head;

	if (!span_copy(content, 0, &head, sizeof(head)) || head.version != VERSION || !head.count ||
	    head.count > PERF_DATA_FLIGHT_TRIGGERS ||
	    head.trigger_size < sizeof(parsed.triggers[0]))
		return false;
	parsed = (struct perf_data_flight){
		.from = head.from,
		.to = head.to,
		.complete = head.complete,
		.missed = head.missed,
		.count = head.count,
	};
	for (uint32_t i = 0; i < head.count; i++)
		if (!parse_trigger(&parsed.triggers[i], content,
				   sizeof(head) + (uint64_t)i * head.trigger_size))
			return false;
	*flight = parsed;
	return true;
}

void perf_data_losses_add(struct bytes *to, const struct losses *losses)
{
	for (int i = 0; i < LOSS_COUNT; i++)
		bytes_add_u64(to, losses->counts[i]);
}

void perf_data_losses_parse(struct losses *losses, struct span content)
{
	*losses = (struct losses){ 0 };
	for (uint64_t i = 0; i < LOSS_COUNT; i++)
		span_u64(content, 8 * i, &losses->counts[i]);
}

/* The block of times starts with this; names, the sum and the rows follow. */
struct times_head {
	uint32_t version, states, vcpus, name_size;
};

static uint64_t grown(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

static void subtract(uint64_t *ns, const uint64_t *earlier, uint32_t states)
{
	for (uint32_t state = 0; state < states; state++)
		ns[state] = grown(ns[state], earlier[state]);
}

void perf_data_times_subtract(struct perf_data_times *times, const struct perf_data_times *earlier)
{
	if (memcmp(times->names, earlier->names, sizeof(times->names)) != 0)
		return;
	subtract(times->sum, earlier->sum, times->states);
	for (uint32_t i = 0; i < times->vcpus; i++)
		for (uint32_t j = 0; j < earlier->vcpus; j++)
			if (earlier->rows[j].vcpu == times->rows[i].vcpu)
				subtract(times->rows[i].ns, earlier->rows[j].ns, times->states);
}

void perf_data_times_add(struct bytes *to, const struct perf_data_times *times)
{
	struct times_head head = { VERSION, times->states, times->vcpus, sizeof(times->names[0]) };

	bytes_add(to, &head, sizeof(head));
	bytes_add(to, times->names, times->states * sizeof(times->names[0]));
	bytes_add(to, times->sum, times->states * sizeof(times->sum[0]));
	for (uint32_t i = 0; i < times->vcpus; i++) {
		bytes_add_u64(to, times->rows[i].vcpu);
		bytes_add(to, times->rows[i].ns, times->states * sizeof(times->rows[i].ns[0]));
	}
}

bool perf_data_times_parse(struct perf_data_times *times, struct span content)
{
	struct perf_data_times parsed = { 0 };
	struct times_head head;
	uint64_t at = sizeof(head), sums;

	if (!span_copy(content, 0, &head, sizeof(head)) || head.version != VERSION ||
	    !head.states || head.states > PERF_DATA_TIME_STATES ||
	    head.vcpus > PERF_DATA_TIME_VCPUS || head.name_size != sizeof(parsed.names[0]))
		return false;
	parsed.states = head.states;
	parsed.vcpus = head.vcpus;
	sums = head.states * sizeof(uint64_t);
	if (!span_copy(content, at, parsed.names, (uint64_t)head.states * head.name_size))
		return false;
	at += (uint64_t)head.states * head.name_size;
	if (!span_copy(content, at, parsed.sum, sums))
		return false;
	at += sums;
	for (uint32_t i = 0; i < head.vcpus; i++, at += sizeof(uint64_t) + sums)
		if (!span_u64(content, at, &parsed.rows[i].vcpu) ||
		    !span_copy(content, at + sizeof(uint64_t), parsed.rows[i].ns, sums))
			return false;
	for (uint32_t i = 0; i < head.states; i++)
		parsed.names[i][sizeof(parsed.names[i]) - 1] = '\0';
	*times = parsed;
	return true;
}
