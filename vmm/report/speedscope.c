/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/speedscope.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "shared/error.h"
#include "shared/hash.h"
#include "shared/pool.h"
#include "vmm/report/folded.h"
#include "vmm/report/json_text.h"

#define ROOTS_MAX    2  /* program and thread */
#define COMM_VISIBLE 15 /* bytes of a name that a comm has (TASK_COMM_LEN) */

/* Functions of one name in two images, or in two builds of one, are two frames. */
struct frame {
	const char *name, *image, *build_id; /* image is NULL for roots */
	uint32_t number;
};

struct writer {
	const struct profile *profile;
	FILE *to;
	struct pool pool;
	struct hash_table frames;
	uint32_t frame_count;
	uint32_t **stacks; /* per stack: the number of frames, then the frames, outermost first */
};

static bool same_frame(const void *item, const void *key)
{
	const struct frame *a = item, *b = key;

	return a->name == b->name && a->image == b->image && a->build_id == b->build_id;
}

static void put_frame(const struct writer *writer, const struct frame *frame)
{
	fputs(frame->number ? ",\n{\"name\":" : "\n{\"name\":", writer->to);
	json_text_put(writer->to, frame->name);
	if (frame->image) {
		fputs(",\"file\":", writer->to);
		json_text_put(writer->to, frame->image);
	}
	fputc('}', writer->to);
}

/* Writes a frame that has no number yet. *NUMBER is its number. 0 or -ENOMEM. */
static int number_frame(struct writer *writer, const char *name, const char *image,
			const char *build_id, uint32_t *number)
{
	struct frame wanted = { .name = pool_string(&writer->pool, name),
				.image = image,
				.build_id = build_id },
		     *frame;
	uint64_t hash = hash_mix((uintptr_t)wanted.name, (uintptr_t)image);

	hash = hash_mix(hash, (uintptr_t)build_id);
	frame = wanted.name ? hash_table_find(&writer->frames, hash, same_frame, &wanted) : NULL;
	if (!frame) {
		frame = pool_alloc(&writer->pool, sizeof(*frame));
		if (!wanted.name || !frame || hash_table_add(&writer->frames, hash, frame))
			return -ENOMEM;
		*frame = wanted;
		frame->number = writer->frame_count++;
		put_frame(writer, frame);
	}
	*number = frame->number;
	return 0;
}

/* A thread's comm is by default the beginning of its program's name. */
static bool thread_has_name(const struct profile_stack *stack)
{
	return *stack->comm && *stack->app && strncmp(stack->comm, stack->app, COMM_VISIBLE) != 0;
}

static int number_stack(struct writer *writer, const struct profile_stack *stack, uint32_t *numbers)
{
	char text[256];
	uint32_t *next = numbers + 1;
	const char *root = *stack->app ? stack->app : folded_comm(stack, text, sizeof(text));
	int error = number_frame(writer, root, NULL, NULL, next++);

	if (!error && thread_has_name(stack))
		error = number_frame(writer, stack->comm, NULL, NULL, next++);
	for (size_t i = stack->depth; i-- > 0 && !error;) {
		const struct profile_frame *frame = stack->frames[i];

		error = number_frame(writer, folded_frame_name(frame, text, sizeof(text)),
				     frame->image, frame->build_id, next++);
	}
	*numbers = (uint32_t)(next - numbers - 1);
	return error;
}

static int put_frames(struct writer *writer)
{
	size_t count = profile_stack_count(writer->profile);
	int error = 0;

	writer->stacks = pool_alloc(&writer->pool, (count + 1) * sizeof(*writer->stacks));
	if (!writer->stacks)
		return -ENOMEM;
	fputs("\"shared\":{\"frames\":[", writer->to);
	for (size_t i = 0; i < count && !error; i++) {
		const struct profile_stack *stack = profile_stack(writer->profile, i);
		size_t size = (1 + ROOTS_MAX + stack->depth) * sizeof(uint32_t);

		writer->stacks[i] = pool_alloc(&writer->pool, size);
		error = writer->stacks[i] ? number_stack(writer, stack, writer->stacks[i])
					  : -ENOMEM;
	}
	fputs("]},\n", writer->to);
	return error;
}

static void put_stack(const struct writer *writer, const uint32_t *numbers)
{
	for (uint32_t i = 1; i <= *numbers; i++)
		fprintf(writer->to, "%c%" PRIu32, i == 1 ? '[' : ',', numbers[i]);
	fputc(']', writer->to);
}

/* Writes the stack or the weight of each run of samples with one stack. Returns all weights. */
static uint64_t put_runs(const struct writer *writer, const struct profile_sample *samples,
			 size_t count, bool weights)
{
	uint64_t all = 0, weight = 0;
	bool any = false;

	for (size_t i = 0; i < count; i++) {
		weight += samples[i].weight;
		if (i + 1 < count && samples[i].stack == samples[i + 1].stack)
			continue;
		if (any)
			fputs(",\n", writer->to);
		if (weights)
			fprintf(writer->to, "%" PRIu64, weight);
		else
			put_stack(writer, writer->stacks[samples[i].stack]);
		any = true;
		all += weight;
		weight = 0;
	}
	return all;
}

static void put_vcpu(const struct writer *writer, const struct profile_sample *samples,
		     size_t count)
{
	const struct profile *profile = writer->profile;
	enum profile_unit unit = profile_event(profile, profile_event_chosen(profile))->unit;
	uint64_t end;

	fputs("{\"type\":\"sampled\",\"name\":", writer->to);
	if (samples->vcpu == UINT32_MAX)
		fputs("\"unknown vCPU\"", writer->to);
	else
		fprintf(writer->to, "\"vCPU %" PRIu32 "\"", samples->vcpu);
	fprintf(writer->to, ",\"unit\":\"%s\",\"startValue\":0,\n\"samples\":[",
		unit == PROFILE_NANOSECONDS ? "nanoseconds" : "none");
	put_runs(writer, samples, count, false);
	fputs("],\n\"weights\":[", writer->to);
	end = put_runs(writer, samples, count, true);
	fprintf(writer->to, "],\n\"endValue\":%" PRIu64 "}", end);
}

static void put_vcpus(const struct writer *writer)
{
	const struct profile_sample *samples = profile_samples_by_vcpu(writer->profile);
	size_t all = (size_t)profile_samples(writer->profile), count;

	fputs("\"profiles\":[", writer->to);
	for (size_t first = 0; first < all; first += count) {
		count = 1;
		while (first + count < all && samples[first + count].vcpu == samples[first].vcpu)
			count++;
		fputs(first ? ",\n" : "\n", writer->to);
		put_vcpu(writer, &samples[first], count);
	}
	fputs("]}\n", writer->to);
}

int speedscope_write(const struct profile *profile, FILE *to)
{
	const struct perf_data_summary *summary = profile_summary(profile);
	struct writer writer = { .profile = profile, .to = to };
	int error;

	fputs("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n"
	      "\"exporter\":\"kvmscope " KVMSCOPE_VERSION "\",\"name\":",
	      to);
	json_text_put(to, *summary->hostname ? summary->hostname : "guest");
	fputs(",\n", to);
	error = put_frames(&writer);
	if (error)
		error_set(error, "no memory for the profile");
	else
		put_vcpus(&writer);
	hash_table_free(&writer.frames);
	pool_free(&writer.pool);
	if (!error && (fflush(to) || ferror(to)))
		error = error_set(-EIO, "cannot write the profile: %s", strerror(errno));
	return error;
}
