/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver on arbitrary sequences of sideband events and samples. Input: a list of steps. Most
 * make records that use few processes, addresses and times, so that they collide; some are raw
 * bytes of the input. Every sample must be emitted exactly once, in order of time unless it was
 * counted as late or times are inexact.
 */
#include <stdlib.h>
#include <string.h>

#include "shared/sideband_record.h"
#include "vmm/perf_data/perf_data_sideband.h"
#include "vmm/resolve/resolver.h"

#define RINGS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *data;
	size_t size;
};

struct state {
	struct resolver *resolver;
	uint64_t now, samples_in, samples_out, last_time, late;
	bool errors; /* of times */
	struct bytes written;
};

static void check(bool condition)
{
	if (!condition)
		abort();
}

static uint8_t next(struct input *input)
{
	if (!input->size)
		return 0;
	input->size--;
	return *input->data++;
}

static uint64_t losses_of(const struct state *state, enum loss kind)
{
	struct losses losses;

	resolver_losses(state->resolver, &losses);
	return losses.counts[kind];
}

static void check_sample(void *context, const struct attributed_sample *attributed)
{
	struct state *state = context;
	const struct sample *sample = attributed->sample;
	uint64_t late = losses_of(state, LOSS_SAMPLE_LATE);

	state->samples_out++;
	check(memchr(sample->comm, '\0', sizeof(sample->comm)));
	for (uint16_t i = 0; i < sample->user_depth; i++)
		check(attributed->user[i].verdict != RESOLVER_AMBIGUOUS);
	if (late == state->late && !state->errors) {
		check(sample->time >= state->last_time);
		state->last_time = sample->time;
	}
	state->late = late;
}

static void check_sideband(void *context, const struct sideband *record)
{
	struct state *state = context;

	check(sideband_check(span_of(record, record->size)) == record);
	state->written.size = 0;
	perf_data_sideband_add(&state->written, record, 0);
	check(state->written.size % 8 == 0);
}

/* A record of any type; the check rejects strings and ranges that are invalid for the type. */
static void step_record(struct state *state, struct input *input)
{
	union {
		struct sideband head;
		struct sideband_fork fork;
		struct sideband_comm comm;
		struct sideband_mmap mmap;
		struct sideband_munmap munmap;
		struct sideband_module module;
		struct sideband_lost lost;
		uint8_t bytes[256];
	} record = { 0 };
	uint8_t ring = next(input) % RINGS;

	record.head.size = 136;
	record.head.type = next(input) % 10;
	record.head.flags = next(input) % 16;
	record.head.time_error = next(input) % 64 * 8;
	state->errors |= record.head.time_error;
	record.head.pid = next(input) % 8;
	record.head.tid = next(input) % 8;
	record.head.cr3 = (uint64_t)(next(input) % 8) << 12;
	record.head.time = state->now + next(input) * 10;
	record.head.time -= record.head.time < 1280 ? 0 : 1280;
	if (record.head.type == SIDEBAND_FORK) {
		record.fork.parent_pid = next(input) % 8;
		record.fork.parent_tid = next(input) % 8;
	} else if (record.head.type == SIDEBAND_COMM) {
		record.comm.comm[0] = (char)next(input);
	} else if (record.head.type == SIDEBAND_LOST) {
		record.lost.count = next(input);
		record.lost.until = record.head.time + next(input) * 10;
	} else {
		record.munmap.start = (uint64_t)(next(input) % 32) << 12;
		record.munmap.length = (uint64_t)(next(input) % 16) << 12;
	}
	if (record.head.type == SIDEBAND_MMAP) {
		record.mmap.prot = next(input) % 8;
		record.mmap.name[0] = '/';
		record.mmap.name[1] = (char)('a' + next(input) % 4);
	}
	resolver_sideband(state->resolver, ring, sideband_check(span_of(&record, sizeof(record))));
}

static void step_bytes(struct state *state, struct input *input)
{
	uint64_t aligned[32] = { 0 };
	size_t size = next(input);

	if (size > input->size)
		size = input->size;
	memcpy(aligned, input->data, size);
	input->data += size;
	input->size -= size;
	resolver_sideband(state->resolver, 0, sideband_check(span_of(aligned, size)));
}

static void step_sample(struct state *state, struct input *input)
{
	struct {
		struct sample sample;
		uint64_t chain[2];
	} record = { 0 };
	struct sample *sample = &record.sample;

	sample->time = state->now + next(input) * 10;
	sample->time -= sample->time < 1280 ? 0 : 1280;
	sample->pid = next(input) % 9;
	if (sample->pid == 8)
		sample->pid = SAMPLE_TASK_UNKNOWN;
	sample->tid = sample->pid == SAMPLE_TASK_UNKNOWN ? sample->pid : next(input) % 8;
	sample->cr3 = (uint64_t)(next(input) % 8) << 12;
	sample->cpl = next(input) & 1 ? 3 : 0;
	sample->rip = (uint64_t)next(input) << 10 | (sample->cpl ? 0 : 1ull << 63);
	sample->kernel_depth = !sample->cpl;
	sample->user_depth = 1;
	record.chain[0] = record.chain[1] = sample->rip & ~(1ull << 63);
	state->samples_in++;
	resolver_sample(state->resolver, next(input) % RINGS, sample);
}

static void step_pass(struct state *state, struct input *input)
{
	uint8_t which = next(input);

	state->now += next(input) * 8;
	resolver_begin_pass(state->resolver, state->now);
	for (size_t ring = 0; ring < RINGS; ring++)
		if (which & 1u << ring)
			resolver_pass_end(state->resolver, ring);
	if (which & 8)
		resolver_flush(state->resolver);
}

static void step(struct state *state, struct input *input)
{
	switch (next(input) % 8) {
	case 0:
		step_bytes(state, input);
		break;
	case 1:
	case 2:
		step_pass(state, input);
		break;
	case 3:
	case 4:
		step_sample(state, input);
		break;
	default:
		step_record(state, input);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = { data, size };
	struct state state = { 0 };
	struct resolver_statistics statistics;

	if (resolver_create(&state.resolver, &(struct resolver_options){ .rings = RINGS,
									 .window = 1000,
									 .sample = check_sample,
									 .sideband = check_sideband,
									 .context = &state }))
		return 0;
	while (input.size)
		step(&state, &input);
	/* Half of the inputs end while records are pending. */
	if (size % 2) {
		resolver_finish(state.resolver);
		resolver_statistics(state.resolver, &statistics);
		check(state.samples_out == state.samples_in && !statistics.waiting);
	}
	resolver_free(state.resolver);
	free(state.written.data);
	return 0;
}
