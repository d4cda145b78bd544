/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JIT functions that a guest reports in any order. Input: the text of a map, which is also a list
 * of steps: samples and records that use few processes, addresses and times, so that they collide.
 * A model reader that tracks every byte of the file must find, at the address of each sample,
 * exactly the function that is known at that time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/agent_protocol.h"
#include "vmm/agent/agent_jit.h"
#include "vmm/guest/linux/perf_map.h"
#include "vmm/record/file_state_parts.h"

#define PIDS      3u
#define ADDRESSES 256u
#define BASE      0x1000u
#define ACCOUNT   1500u /* bytes; enough for a few functions only */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *data;
	size_t size;
};

struct state {
	struct jit_code *code;
	struct file_jit *jit;
	bool limited; /* by ACCOUNT */
	/* The model reader's state: the offset in the image of functions; 0: not a JIT function. */
	uint64_t model[PIDS][ADDRESSES];
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

static uint64_t next_time(struct input *input)
{
	return next(input) * 10000000ull;
}

static void read_text(struct span text)
{
	struct perf_map_line line;

	while (perf_map_next(&text, &line)) {
		check(line.length && line.start + line.length > line.start && *line.name);
		for (const char *at = line.name; *at; at++)
			check(*at >= ' ' && *at <= '~');
	}
}

static void apply_record(void *context, struct sideband *record)
{
	struct state *state = context;

	check(sideband_check(span_of(record, record->size)) == record);
	jit_code_apply(state->code, record);
}

/* In the format that the agent sends. */
static void apply_message(struct state *state, struct input *input)
{
	uint64_t bytes[64] = { 0 };
	struct agent_message *message = (struct agent_message *)bytes;
	struct agent_jit_map *map = (struct agent_jit_map *)message->payload;
	unsigned int start = next(input), length = next(input) % 64;

	map->pid = 1 + next(input) % PIDS;
	map->time = next_time(input);
	map->since = next_time(input);
	map->flags = next(input) % 8;
	map->size = (uint32_t)snprintf(map->lines, 64, "%x %x f%u\n", BASE + start, length,
				       next(input) % 8);
	*message = (struct agent_message){ .size = sizeof(bytes), .type = AGENT_JIT_MAP };
	agent_jit_decode(message, apply_record, state);
}

static void map_in_model(struct state *state, const struct sideband_mmap *mmap)
{
	bool jitted = !strncmp(mmap->name, "jitted-", 7);

	for (uint64_t i = 0; i < mmap->length; i++)
		if (mmap->start + i >= BASE && mmap->start + i < BASE + ADDRESSES)
			state->model[mmap->head.pid - 1][mmap->start + i - BASE] =
				jitted ? mmap->offset + i : 0;
}

static int read_record(void *context, const struct sideband *record)
{
	check(sideband_check(span_of(record, record->size)) == record &&
	      record->type == SIDEBAND_MMAP);
	map_in_model(context, (const void *)record);
	return 0;
}

static bool is_anonymous(uint64_t address)
{
	return address % 32 != 5;
}

static struct resolver_mapping decide(uint64_t address)
{
	static const union {
		struct resolver_image image;
		char bytes[sizeof(struct resolver_image) + 8];
	} anonymous = {
		.bytes = { [offsetof(struct resolver_image, name)] = '/', '/', 'a', 'n', 'o', 'n' }
	};

	uint64_t start = address - (address + 32 - 6) % 32;

	if (!is_anonymous(address))
		return (struct resolver_mapping){ .verdict = RESOLVER_UNKNOWN };
	return (struct resolver_mapping){ .verdict = RESOLVER_REPORTED,
					  .image = &anonymous.image,
					  .start = start,
					  .end = start + 31 };
}

static uint64_t expected_offset(struct state *state, const struct sample *sample, uint64_t address)
{
	struct jit_function function;

	if (!is_anonymous(address) ||
	    !jit_code_find(state->code, sample->pid, address, sample->time, &function))
		return 0;
	check(address >= function.range.start && address < function.range.end);
	return function.offset + (address - function.range.start);
}

static void check_sample(struct state *state, struct input *input)
{
	uint64_t bytes[(sizeof(struct sample) + 16) / 8] = { 0 };
	struct sample *sample = (struct sample *)bytes;
	struct attributed_sample attributed = { .sample = sample };
	uint64_t model;

	sample->pid = sample->tid = 1 + next(input) % PIDS;
	sample->time = next_time(input);
	sample->cpl = 3;
	sample->rip = BASE + next(input);
	sample->user_depth = 1;
	sample->callchain[0] = sample->rip;
	attributed.mapping = decide(sample->rip);
	attributed.user = &attributed.mapping;
	check(!file_jit_sample(state->jit, state->code, &attributed));
	model = state->model[sample->pid - 1][sample->rip - BASE];
	check(model == expected_offset(state, sample, sample->rip) || (state->limited && !model));
}

static void map_file(struct state *state, struct input *input)
{
	uint64_t bytes[(sizeof(struct sideband_mmap) + 16) / 8] = { 0 };
	struct sideband_mmap *mmap = (struct sideband_mmap *)bytes;

	mmap->head = (struct sideband){ .size = sideband_size(sizeof(*mmap), "/f"),
					.type = SIDEBAND_MMAP,
					.pid = 1 + next(input) % PIDS };
	mmap->start = BASE + next(input);
	mmap->length = 1 + next(input);
	strcpy(mmap->name, "/f");
	map_in_model(state, mmap);
	check(!file_jit_written(state->jit, &mmap->head));
}

static void apply_task(struct state *state, struct input *input, uint8_t what)
{
	struct sideband_fork fork = { .head = { .size = sizeof(fork),
						.type = SIDEBAND_FORK,
						.pid = 1 + next(input) % PIDS } };
	struct sideband_comm comm = {
		.head = { .size = sizeof(comm), .type = SIDEBAND_COMM, .flags = SIDEBAND_COMM_EXEC }
	};
	const struct sideband *record = what % 2 ? &fork.head : &comm.head;

	fork.parent_pid = 1 + next(input) % PIDS;
	fork.head.time = comm.head.time = next_time(input);
	comm.head.pid = fork.head.pid;
	jit_code_apply(state->code, record);
	if (!(what % 2))
		memset(state->model[fork.head.pid - 1], 0, sizeof(state->model[0]));
	else if (fork.parent_pid != fork.head.pid)
		memcpy(state->model[fork.head.pid - 1], state->model[fork.parent_pid - 1],
		       sizeof(state->model[0]));
	check(!file_jit_written(state->jit, record));
}

static void apply_round(struct state *state, struct input *input)
{
	const struct sideband round = { .size = sizeof(round),
					.type = SIDEBAND_ROUND,
					.time = next_time(input) };

	jit_code_apply(state->code, &round);
}

static void apply_lost(struct state *state, struct input *input)
{
	struct sideband_lost lost = {
		.head = { .size = sizeof(lost), .type = SIDEBAND_LOST, .time = next_time(input) }
	};

	lost.until = lost.head.time + next_time(input);
	jit_code_apply(state->code, &lost.head);
}

static void do_step(struct state *state, struct input *input)
{
	uint8_t what = next(input);

	switch (what % 16) {
	case 0:
		map_file(state, input);
		break;
	case 1:
		apply_task(state, input, what >> 4);
		break;
	case 2 ... 4:
		apply_round(state, input);
		break;
	case 5 ... 9:
		apply_message(state, input);
		break;
	case 10:
		if (what >> 4 == 15)
			apply_lost(state, input);
		break;
	default:
		check_sample(state, input);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct guest_account account;
	static struct state state;
	struct input input = { data, size };

	read_text(span_of(data, size));
	guest_account_init(&account, ACCOUNT);
	state = (struct state){ .code = jit_code_new(NULL), .limited = size % 2 };
	state.jit = file_jit_new(state.limited ? &account : NULL,
				 &(struct file_emit){ read_record, &state });
	check(state.code && state.jit);
	while (input.size)
		do_step(&state, &input);
	file_jit_free(state.jit);
	jit_code_free(state.code);
	return 0;
}
