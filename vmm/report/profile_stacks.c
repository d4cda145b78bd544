/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/profile_stacks.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/hash.h"
#include "shared/printable.h"
#include "vmm/report/symbolizer.h"
#include "vmm/report/time_ranges.h"

struct profile {
	const char *input, *times;
	struct symbolizer *symbolizer;
	struct pool pool;
	struct hash_table
		table; /* struct profile_stack by frames, app, comm, cgroup, pid, tid and vCPU */
	struct profile_stack **stacks;
	size_t count, capacity;
	uint64_t samples, first, last; /* first and last time, ns */
	bool keeps_samples;
	struct profile_sample *kept;
	size_t kept_capacity;
	struct profile_event *events; /* owned */
	size_t event_count;
	struct perf_data_summary summary; /* with strings that are safe to show */
};

static int out_of_memory(const struct profile *profile)
{
	return error_set(-ENOMEM, "no memory for the stacks in %s", profile->input);
}

/* A stack, and its place among all. */
struct indexed_stack {
	struct profile_stack stack;
	uint32_t number;
};

static bool same_stack(const void *item, const void *key)
{
	const struct profile_stack *stack = &((const struct indexed_stack *)item)->stack;
	const struct symbolized_sample *sample = key;

	if (stack->event != sample->recorded->event || stack->depth != sample->depth ||
	    stack->comm != sample->comm || stack->app != sample->app ||
	    stack->vcpu != sample->vcpu || stack->cgroup != sample->cgroup ||
	    stack->pid != sample->recorded->pid || stack->tid != sample->tid)
		return false;
	for (size_t i = 0; i < stack->depth; i++)
		if (stack->frames[i] != sample->frames[i].frame)
			return false;
	return true;
}

static uint64_t hash_stack(const struct symbolized_sample *sample)
{
	uint64_t hash = (uint64_t)sample->vcpu << 32 | sample->recorded->pid;

	for (size_t i = 0; i < sample->depth; i++)
		hash = hash_mix(hash, (uintptr_t)sample->frames[i].frame);
	hash = hash_mix(hash, (uintptr_t)sample->comm ^ sample->tid);
	hash = hash_mix(hash, sample->recorded->event);
	hash = hash_mix(hash, (uintptr_t)sample->cgroup);
	return hash_mix(hash, (uintptr_t)sample->app);
}

static struct indexed_stack *add_stack(struct profile *profile,
				       const struct symbolized_sample *sample, uint64_t hash)
{
	struct indexed_stack *numbered = pool_alloc(&profile->pool, sizeof(*numbered));
	struct profile_stack *stack = &numbered->stack;
	const struct profile_frame **frames =
		pool_alloc(&profile->pool, sample->depth * sizeof(struct profile_frame *));

	if (!numbered || !frames)
		return NULL;
	for (size_t i = 0; i < sample->depth; i++)
		frames[i] = sample->frames[i].frame;
	stack->frames = frames;
	stack->depth = sample->depth;
	stack->comm = sample->comm;
	stack->app = sample->app;
	stack->cgroup = sample->cgroup;
	stack->container = sample->container;
	stack->pid = sample->recorded->pid;
	stack->tid = sample->tid;
	stack->vcpu = sample->vcpu;
	stack->event = sample->recorded->event;
	if (hash_table_add(&profile->table, hash, numbered) ||
	    array_reserve(&profile->stacks, &profile->capacity, profile->count + 1))
		return NULL;
	numbered->number = (uint32_t)profile->count;
	profile->stacks[profile->count++] = stack;
	return numbered;
}

/* True if the period is a multiple of the event's. */
static bool is_of_frequency(const struct profile_event *event, uint64_t period)
{
	return event->unit != PROFILE_NANOSECONDS || !event->frequency ||
	       event->frequency > NS_PER_S || period % (NS_PER_S / event->frequency) == 0;
}

static int keep_sample(struct profile *profile, const struct symbolized_sample *sample,
		       uint32_t stack)
{
	if (array_reserve(&profile->kept, &profile->kept_capacity, profile->samples + 1))
		return out_of_memory(profile);
	profile->kept[profile->samples] = (struct profile_sample){
		.time = sample->recorded->time,
		.weight = sample->recorded->period,
		.vcpu = sample->vcpu,
		.stack = stack,
	};
	return 0;
}

static int by_vcpu(const void *left, const void *right)
{
	const struct profile_sample *a = left, *b = right;

	if (a->vcpu != b->vcpu)
		return a->vcpu < b->vcpu ? -1 : 1;
	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	return (a->stack > b->stack) - (a->stack < b->stack);
}

static int on_sample(void *context, const struct symbolized_sample *sample)
{
	struct profile *profile = context;
	struct profile_event *event = &profile->events[sample->recorded->event];
	uint64_t hash = hash_stack(sample);
	struct indexed_stack *found = hash_table_find(&profile->table, hash, same_stack, sample);

	if (!found)
		found = add_stack(profile, sample, hash);
	if (!found)
		return out_of_memory(profile);
	if (profile->keeps_samples && keep_sample(profile, sample, found->number))
		return -ENOMEM;
	found->stack.samples++;
	found->stack.weight += sample->recorded->period;
	event->samples++;
	event->weight += sample->recorded->period;
	event->frequency_changed |= !is_of_frequency(event, sample->recorded->period);
	if (!profile->samples || sample->recorded->time < profile->first)
		profile->first = sample->recorded->time;
	if (sample->recorded->time > profile->last)
		profile->last = sample->recorded->time;
	profile->samples++;
	return 0;
}

static void copy_summary(struct profile *profile)
{
	struct perf_data_summary *summary = &profile->summary;

	*summary = *symbolizer_summary(profile->symbolizer);
	make_printable(summary->event_name);
	make_printable(summary->hostname);
	make_printable(summary->release);
	make_printable(summary->arch);
	make_printable(summary->command_line);
	for (uint32_t i = 0; i < summary->times.states; i++)
		make_printable(summary->times.names[i]);
	for (uint32_t i = 0; i < summary->flight.count; i++) {
		make_printable(summary->flight.triggers[i].kind);
		make_printable(summary->flight.triggers[i].detail);
	}
}

static bool is_clock(const char *name)
{
	static const char *const clocks[] = { "cpu-clock", "task-clock", "wall-clock", "kvm:exit",
					      "kvm:off-cpu" };

	/* Modifiers may follow, as in "cpu-clock:ppp". */
	for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++)
		if (!strncmp(name, clocks[i], strlen(clocks[i])))
			return true;
	return false;
}

static enum profile_unit unit_of(const struct perf_data_event *event, const char *name)
{
	if (event->type == PERF_TYPE_BREAKPOINT)
		return PROFILE_HITS;
	return is_clock(name) ? PROFILE_NANOSECONDS : PROFILE_EVENTS;
}

static const char *name_event(struct profile *profile, const struct perf_data_event *event)
{
	char text[256];

	if (event->name)
		snprintf(text, sizeof(text), "%s", event->name);
	else
		perf_data_event_type_name(event, text, sizeof(text));
	make_printable(text);
	return pool_string(&profile->pool, text);
}

static int read_events(struct profile *profile)
{
	const struct perf_data_event *event;

	while (symbolizer_event(profile->symbolizer, profile->event_count))
		profile->event_count++;
	profile->events = calloc(profile->event_count + 1, sizeof(profile->events[0]));
	if (!profile->events)
		return out_of_memory(profile);
	profile->events[profile->event_count].name = ""; /* for a file without events */
	for (size_t i = 0; (event = symbolizer_event(profile->symbolizer, i)); i++) {
		const char *name = name_event(profile, event);

		if (!name)
			return out_of_memory(profile);
		profile->events[i] = (struct profile_event){ .name = name,
							     .unit = unit_of(event, name),
							     .frequency = event->frequency };
	}
	return 0;
}

/* Counts are complete after the last record. */
static void read_counts(struct profile *profile)
{
	for (size_t i = 0; i < profile->event_count; i++)
		if (profile->events[i].unit == PROFILE_HITS)
			symbolizer_count(profile->symbolizer, i, &profile->events[i].count);
}

int profile_load(struct profile **loaded, const struct profile_options *options)
{
	struct profile *profile = calloc(1, sizeof(*profile));
	int error;

	if (!profile)
		return error_set(-ENOMEM, "no memory for the profile in %s", options->input);
	profile->input = options->input;
	profile->times = options->times && options->times->text ? options->times->text : "";
	profile->keeps_samples = options->samples;
	error = symbolizer_open(&profile->symbolizer, options);
	if (!error)
		error = read_events(profile);
	if (!error)
		error = symbolizer_run(profile->symbolizer, on_sample, profile);
	if (error) {
		profile_free(profile);
		return error;
	}
	copy_summary(profile);
	read_counts(profile);
	if (profile->kept)
		qsort(profile->kept, profile->samples, sizeof(*profile->kept), by_vcpu);
	*loaded = profile;
	return 0;
}

void profile_free(struct profile *profile)
{
	if (!profile)
		return;
	symbolizer_close(profile->symbolizer);
	hash_table_free(&profile->table);
	pool_free(&profile->pool);
	free(profile->stacks);
	free(profile->kept);
	free(profile->events);
	free(profile);
}

size_t profile_stack_count(const struct profile *profile)
{
	return profile->count;
}

const struct profile_stack *profile_stack(const struct profile *profile, size_t index)
{
	return profile->stacks[index];
}

uint64_t profile_samples(const struct profile *profile)
{
	return profile->samples;
}

const struct profile_sample *profile_samples_by_vcpu(const struct profile *profile)
{
	return profile->kept;
}

size_t profile_event_count(const struct profile *profile)
{
	return profile->event_count;
}

const struct profile_event *profile_event(const struct profile *profile, size_t number)
{
	return &profile->events[number];
}

size_t profile_event_chosen(const struct profile *profile)
{
	int chosen = symbolizer_chosen(profile->symbolizer);

	return chosen < 0 ? 0 : (size_t)chosen;
}

uint64_t profile_duration(const struct profile *profile)
{
	return profile->last - profile->first;
}

uint64_t profile_lost(const struct profile *profile)
{
	return symbolizer_lost(profile->symbolizer);
}

const struct perf_data_summary *profile_summary(const struct profile *profile)
{
	return &profile->summary;
}

const char *profile_times(const struct profile *profile)
{
	return profile->times;
}

const char *profile_note(const struct profile *profile)
{
	return symbolizer_note(profile->symbolizer);
}

void profile_inlines(const struct profile *profile, size_t *images, size_t *unknown)
{
	symbolizer_inlines(profile->symbolizer, images, unknown);
}

const char *profile_unit_name(enum profile_unit unit)
{
	static const char *const names[] = {
		[PROFILE_NANOSECONDS] = "ns", [PROFILE_HITS] = "hits", [PROFILE_EVENTS] = "events"
	};

	return names[unit];
}

bool profile_frame_is_module(const struct profile_frame *frame)
{
	return frame->kernel && *frame->image == '[' && !strstr(frame->image, "kernel.") &&
	       strcmp(frame->image, "[unknown]") != 0;
}
