/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/script.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/pool.h"
#include "shared/printable.h"
#include "shared/sample_record.h"
#include "vmm/report/symbolizer.h"

struct entry {
	uint64_t time, period, ip;
	size_t order; /* in the file */
	const struct symbolized_frame *frames;
	size_t depth;
	const char *comm;
	uint32_t tid, vcpu;
	uint16_t event;
	bool callchain;
	bool watched; /* the event has addresses: */
	uint64_t address;
	bool has_values;
	struct perf_data_hit_values values;
};

struct script {
	const char *input;
	struct pool pool;
	struct entry *entries;
	size_t count, capacity;
	const struct symbolizer *symbolizer;
};

static int out_of_memory(const struct script *script)
{
	return error_set(-ENOMEM, "no memory for the samples in %s", script->input);
}

static bool is_watch(const struct script *script, uint16_t event)
{
	const struct perf_data_event *of = symbolizer_event(script->symbolizer, event);

	return of && of->type == PERF_TYPE_BREAKPOINT && of->sample_type & PERF_SAMPLE_ADDR;
}

static int on_sample(void *context, const struct symbolized_sample *sample)
{
	struct script *script = context;
	size_t size = sample->depth * sizeof(*sample->frames);
	struct symbolized_frame *frames = pool_alloc(&script->pool, size);

	if (array_reserve(&script->entries, &script->capacity, script->count + 1))
		return out_of_memory(script);
	if (!frames)
		return out_of_memory(script);
	memcpy(frames, sample->frames, size);
	script->entries[script->count] = (struct entry){
		.time = sample->recorded->time,
		.period = sample->recorded->period,
		.ip = sample->recorded->ip,
		.order = script->count,
		.frames = frames,
		.depth = sample->depth,
		.comm = sample->comm,
		.tid = sample->recorded->tid,
		.vcpu = sample->vcpu,
		.callchain = sample->recorded->callchain,
		.event = sample->recorded->event,
		.watched = is_watch(script, sample->recorded->event),
		.address = sample->recorded->address,
		.has_values = sample->recorded->has_values,
		.values = sample->recorded->values,
	};
	script->count++;
	return 0;
}

static int by_time(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;

	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	return a->order < b->order ? -1 : 1;
}

static void write_frame(const struct symbolized_frame *frame, uint64_t address, FILE *to)
{
	const char *path = symbolized_frame_path(frame);

	fprintf(to, "%16" PRIx64 " ", address);
	if (frame->frame->inlined)
		fputs(frame->frame->function, to);
	else if (frame->frame->symbol)
		fprintf(to, "%s+0x%" PRIx64, frame->frame->symbol, symbolized_frame_offset(frame));
	else
		fputs("[unknown]", to);
	/* Like perf script. */
	fprintf(to, " (%s)\n", frame->frame->inlined ? "inlined" : *path ? path : "[unknown]");
}

/* Values that perf script shows as bytes only: before, after, and the number of the hit on the
 * vCPU. */
static void write_values(const struct perf_data_hit_values *values, FILE *to)
{
	if (values->flags & SAMPLE_HIT_BEFORE)
		fprintf(to, " %#" PRIx64 " ->", values->before);
	else if (values->flags & SAMPLE_HIT_AFTER)
		fputs(" ? ->", to);
	if (values->flags & SAMPLE_HIT_AFTER)
		fprintf(to, " %#" PRIx64, values->after);
	if (values->hits)
		fprintf(to, " #%" PRIu64, values->hits);
}

/* After the event's name, where perf script has the address (-F addr). */
static void write_hit(const struct entry *entry, FILE *to)
{
	if (!entry->watched)
		return;
	fprintf(to, " %16" PRIx64, entry->address);
	if (entry->has_values)
		write_values(&entry->values, to);
}

static void write_entry(const struct entry *entry, const char *event, FILE *to)
{
	char nameless[16];
	const char *comm = entry->comm;

	if (!*comm) {
		snprintf(nameless, sizeof(nameless), ":%d", (int32_t)entry->tid);
		comm = nameless;
	}
	fprintf(to, entry->callchain ? "%s %5d " : "%16s %5d ", comm, (int32_t)entry->tid);
	if (entry->vcpu != UINT32_MAX)
		fprintf(to, "[%03u] ", entry->vcpu);
	fprintf(to, "%5" PRIu64 ".%06" PRIu64 ": %10" PRIu64 " %s: ", entry->time / NS_PER_S,
		entry->time % NS_PER_S / 1000, entry->period, event);
	write_hit(entry, to);
	if (!entry->callchain) {
		fputc(' ', to);
		write_frame(&entry->frames[0], entry->ip, to);
		return;
	}
	fputc('\n', to);
	for (size_t i = 0; i < entry->depth; i++) {
		fputc('\t', to);
		write_frame(&entry->frames[i], symbolized_frame_address(&entry->frames[i]), to);
	}
	fputc('\n', to);
}

/* Names of all events, safe to show, owned by the pool. NULL without memory. */
static const char **name_events(struct script *script)
{
	const struct perf_data_event *event;
	const char **names;
	char text[256];
	size_t count = 0;

	while (symbolizer_event(script->symbolizer, count))
		count++;
	names = pool_alloc(&script->pool, (count + 1) * sizeof(char *));
	for (size_t i = 0; names && (event = symbolizer_event(script->symbolizer, i)); i++) {
		snprintf(text, sizeof(text), "%s",
			 event->name ? event->name
				     : symbolizer_summary(script->symbolizer)->event_name);
		make_printable(text);
		names[i] = pool_string(&script->pool, text);
		names = names[i] ? names : NULL;
	}
	return names;
}

static int write_entries(struct script *script, FILE *to)
{
	const char **names = name_events(script);

	if (!names)
		return out_of_memory(script);
	if (script->count)
		qsort(script->entries, script->count, sizeof(*script->entries), by_time);
	for (size_t i = 0; i < script->count; i++)
		write_entry(&script->entries[i], names[script->entries[i].event], to);
	if (fflush(to) || ferror(to))
		return error_set(-EIO, "cannot write the samples: %s", strerror(errno));
	return 0;
}

int script_write(const struct profile_options *options, FILE *to)
{
	struct script script = { .input = options->input };
	struct symbolizer *symbolizer;
	int error = symbolizer_open(&symbolizer, options);

	if (error)
		return error;
	script.symbolizer = symbolizer;
	error = symbolizer_run(symbolizer, on_sample, &script);
	if (!error)
		error = write_entries(&script, to);
	symbolizer_close(symbolizer);
	pool_free(&script.pool);
	free(script.entries);
	return error;
}
