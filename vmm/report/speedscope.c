/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/speedscope.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/report/json_text.h"
#include "vmm/report/numbered_frames.h"

struct writer {
	const struct profile *profile;
	FILE *to;
	struct numbered_frames frames;
};

static void put_frames(const struct writer *writer)
{
	fputs("\"shared\":{\"frames\":[", writer->to);
	for (size_t i = 0; i < writer->frames.count; i++) {
		const struct numbered_frame *frame = writer->frames.list[i];

		fputs(i ? ",\n{\"name\":" : "\n{\"name\":", writer->to);
		json_text_put(writer->to, frame->name);
		if (frame->frame) {
			fputs(",\"file\":", writer->to);
			json_text_put(writer->to, frame->frame->image);
		}
		fputc('}', writer->to);
	}
	fputs("]},\n", writer->to);
}

static void put_stack(const struct writer *writer, const struct numbered_stack *stack)
{
	for (uint32_t i = 0; i < stack->depth; i++)
		fprintf(writer->to, "%c%" PRIu32, i ? ',' : '[', stack->frames[i]);
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
			put_stack(writer, writer->frames.stacks[samples[i].stack]);
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
	char name[32];
	uint64_t end;

	vcpu_name(samples->vcpu, name, sizeof(name));
	fprintf(writer->to,
		"{\"type\":\"sampled\",\"name\":\"%s\",\"unit\":\"%s\",\"startValue\":0,\n"
		"\"samples\":[",
		name, unit == PROFILE_NANOSECONDS ? "nanoseconds" : "none");
	put_runs(writer, samples, count, false);
	fputs("],\n\"weights\":[", writer->to);
	end = put_runs(writer, samples, count, true);
	fprintf(writer->to, "],\n\"endValue\":%" PRIu64 "}", end);
}

static void put_vcpus(const struct writer *writer)
{
	const struct profile_sample *samples = profile_samples_by_vcpu(writer->profile);
	size_t count;

	fputs("\"profiles\":[", writer->to);
	for (size_t first = 0; (count = samples_of_vcpu(writer->profile, first)); first += count) {
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
	error = numbered_frames_make(&writer.frames, profile);
	if (!error) {
		put_frames(&writer);
		put_vcpus(&writer);
	}
	numbered_frames_free(&writer.frames);
	if (!error && (fflush(to) || ferror(to)))
		error = error_set(-EIO, "cannot write the profile: %s", strerror(errno));
	return error;
}
