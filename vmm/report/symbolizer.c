/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/symbolizer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/parse_number.h"
#include "shared/printable.h"
#include "vmm/report/image_inlines.h"
#include "vmm/report/symbolizer_state.h"

int symbolizer_out_of_memory(const struct symbolizer *resolver)
{
	return error_set(-ENOMEM, "no memory for the profile in %s", resolver->options.input);
}

static int no_event(const struct symbolizer *resolver)
{
	char list[512] = "";
	const struct perf_data_event *event;
	size_t used = 0;

	for (size_t i = 0; (event = symbolizer_event(resolver, i)) && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%zu %s",
					 i ? ", " : "", i, event->name ? event->name : "");
	make_printable(list);
	return error_set(-ENOENT, "there is no event %s in %s; it has %s", resolver->options.event,
			 resolver->options.input, list);
}

/* By name; else by number. */
static int choose_event(struct symbolizer *resolver)
{
	const char *wanted = resolver->options.event;
	const struct perf_data_event *event;
	const char *end;
	uint64_t number;

	resolver->chosen = -1;
	if (!wanted)
		return 0;
	for (size_t i = 0; (event = symbolizer_event(resolver, i)); i++)
		if (event->name && !strcmp(event->name, wanted)) {
			resolver->chosen = (int)i;
			return 0;
		}
	end = parse_decimal(wanted, INT_MAX, &number);
	if (!end || *end || !symbolizer_event(resolver, number))
		return no_event(resolver);
	resolver->chosen = (int)number;
	return 0;
}

static int open_input(struct symbolizer *resolver)
{
	const char *path = profile_input_open(&resolver->input, resolver->options.input);

	return path ? perf_data_reader_open(&resolver->reader, path) : -EIO;
}

int symbolizer_open(struct symbolizer **opened, const struct profile_options *options)
{
	struct symbolizer *resolver = calloc(1, sizeof(*resolver));
	int error = -ENOMEM;

	if (!resolver)
		return error_set(-ENOMEM, "no memory for the profile in %s", options->input);
	resolver->options = *options;
	resolver->input.fd = -1;
	resolver->kernels[1].guest = true;
	resolver->timeline = profile_timeline_new(&resolver->pool);
	resolver->unknown = pool_string(&resolver->pool, "[unknown]");
	resolver->none = pool_string(&resolver->pool, "");
	if (!resolver->timeline || !resolver->unknown || !resolver->none ||
	    profile_frame_cache_open(&resolver->cache))
		error = symbolizer_out_of_memory(resolver);
	else
		error = open_input(resolver);
	if (!error)
		error = symbolizer_read_sideband(resolver);
	if (!error)
		error = choose_event(resolver);
	if (error) {
		symbolizer_close(resolver);
		return error;
	}
	*opened = resolver;
	return 0;
}

void symbolizer_close(struct symbolizer *resolver)
{
	if (!resolver)
		return;
	for (size_t i = 0; i < resolver->images.capacity; i++) {
		struct profile_image *image = resolver->images.slots[i].item;

		if (!image)
			continue;
		symbols_free(image->symbols);
		image_inlines_free(image->inlines);
	}
	for (size_t i = 0; i < 2; i++) {
		symbols_free(resolver->kernels[i].symbols);
		image_inlines_free(resolver->kernels[i].inlines);
	}
	if (resolver->reader)
		perf_data_reader_close(resolver->reader);
	profile_input_close(&resolver->input);
	profile_frame_cache_close(&resolver->cache);
	profile_timeline_free(resolver->timeline);
	hash_table_free(&resolver->images);
	hash_table_free(&resolver->build_ids);
	hash_table_free(&resolver->cgroups);
	hash_table_free(&resolver->frames);
	pool_free(&resolver->pool);
	free(resolver);
}

/* A space at a sample's time; looked up when an address first asks for it. */
struct view {
	uint16_t mode;
	const struct profile_space *space;
	uint32_t epoch;
	uint32_t id; /* for the cache: UINT32_MAX without a space */
};

static struct view view_of(const struct symbolizer *resolver, const struct perf_data_sample *sample,
			   uint16_t mode)
{
	struct view view = { .mode = mode, .id = UINT32_MAX - is_kernel_mode(mode) };

	if (mode == PERF_RECORD_MISC_CPUMODE_UNKNOWN)
		return view; /* in no space: what was mapped there is not sure */
	view.space = profile_timeline_space(
		resolver->timeline, is_guest_mode(mode),
		is_kernel_mode(mode) ? PROFILE_KERNEL : (int32_t)sample->pid, sample->time);
	if (view.space) {
		view.epoch = profile_space_epoch(view.space, sample->time);
		view.id = view.space->id;
	}
	return view;
}

static void push(struct symbolizer *resolver, const struct profile_frame *frame, uint64_t own,
		 size_t *depth)
{
	if (*depth < PROFILE_DEPTH_MAX)
		resolver->stack[(*depth)++] =
			(struct symbolized_frame){ .frame = frame, .own = own };
}

/* What is inlined there, and the function that it is inlined into; CALLER: a call returns to
 * ADDRESS. */
static int add_frame(struct symbolizer *resolver, const struct view *view, uint64_t address,
		     bool caller, size_t *depth)
{
	struct profile_frame_cache_entry *entry;

	if (*depth == PROFILE_DEPTH_MAX)
		return 0;
	entry = profile_frame_cache_entry(&resolver->cache, address, view->id, view->epoch,
					  caller && resolver->options.inlined);
	if (!entry || (!entry->frame && symbolizer_resolve(resolver, view->space,
							   is_kernel_mode(view->mode), entry)))
		return symbolizer_out_of_memory(resolver);
	for (size_t i = 0; i < entry->inlined_count; i++)
		push(resolver, entry->inlined[i], entry->own, depth);
	push(resolver, entry->frame, entry->own, depth);
	return 0;
}

/* The mode that a marker in a callchain switches to; 0: none that is known. */
static uint16_t mode_behind(uint64_t marker)
{
	switch (marker) {
	case PERF_CONTEXT_KERNEL:
		return PERF_RECORD_MISC_KERNEL;
	case PERF_CONTEXT_USER:
		return PERF_RECORD_MISC_USER;
	case PERF_CONTEXT_HV:
		return PERF_RECORD_MISC_HYPERVISOR;
	case PERF_CONTEXT_GUEST_KERNEL:
		return PERF_RECORD_MISC_GUEST_KERNEL;
	case PERF_CONTEXT_GUEST_USER:
		return PERF_RECORD_MISC_GUEST_USER;
	default:
		return 0;
	}
}

/*
 * The callchain's frames behind the first one, which is the sampled address itself. The first of
 * each mode is where the CPU was, or is to go on; behind it are addresses that calls return to.
 */
static int add_callchain(struct symbolizer *resolver, const struct perf_data_sample *sample,
			 struct view view, size_t *depth)
{
	bool first = true, caller = false;
	int error = 0;

	for (size_t i = 0; i < sample->callchain_size && !error; i++) {
		uint64_t address = sample->callchain[i];

		if (address >= PERF_CONTEXT_MAX) {
			uint16_t mode = mode_behind(address);

			if (!mode)
				return 0;
			if (mode != view.mode)
				view = view_of(resolver, sample, mode);
			caller = false;
			continue;
		}
		if (!first || address != sample->ip)
			error = add_frame(resolver, &view, address, caller, depth);
		first = false;
		caller = true;
	}
	return error;
}

static int add_host_frame(struct symbolizer *resolver, size_t *depth)
{
	const struct profile_frame *frame = symbolizer_host_frame(resolver);

	if (!frame)
		return symbolizer_out_of_memory(resolver);
	push(resolver, frame, 0, depth);
	return 0;
}

static int add_frames(struct symbolizer *resolver, const struct perf_data_sample *sample,
		      size_t *depth)
{
	struct view view = view_of(resolver, sample, sample->misc);
	int error;

	if (sample->misc == PERF_RECORD_MISC_HYPERVISOR)
		return add_host_frame(resolver, depth);
	error = add_frame(resolver, &view, sample->ip, false, depth);
	if (!error && !resolver->options.leaves_only)
		error = add_callchain(resolver, sample, view, depth);
	return error;
}

/* Whose work it is: the program's, whatever its threads call themselves. */
static const char *app_of(const struct symbolizer *resolver, const struct perf_data_sample *sample,
			  const char *comm)
{
	const struct profile_image *program =
		profile_timeline_program(resolver->timeline, sample->pid, sample->time);

	return program ? program->name : comm;
}

static void name_cgroup(const struct symbolizer *resolver, struct symbolized_sample *sample)
{
	uint64_t id = sample->recorded->cgroup;
	const struct profile_cgroup *cgroup = id ? symbolizer_cgroup(resolver, id) : NULL;

	sample->cgroup = cgroup ? cgroup->path : resolver->none;
	sample->container = cgroup ? cgroup->container : resolver->none;
}

static int take_sample(void *context, const struct perf_data_sample *sample)
{
	struct symbolizer *resolver = context;
	uint32_t vcpu = sample->vcpu != UINT32_MAX ? sample->vcpu : sample->cpu;
	struct symbolized_sample resolved = { .recorded = sample,
					      .frames = resolver->stack,
					      .vcpu = vcpu };
	int error;

	if ((resolver->chosen >= 0 && sample->event != resolver->chosen) ||
	    (resolver->options.vcpu >= 0 && vcpu != (uint32_t)resolver->options.vcpu))
		return 0;
	error = add_frames(resolver, sample, &resolved.depth);
	if (error)
		return error;
	resolved.comm = profile_timeline_comm_of(resolver->timeline, sample->tid, sample->time);
	resolved.app = app_of(resolver, sample, resolved.comm);
	name_cgroup(resolver, &resolved);
	resolved.tid = resolver->options.threads ? sample->tid : 0;
	return resolver->each(resolver->each_context, &resolved);
}

int symbolizer_run(struct symbolizer *resolver,
		   int (*each)(void *context, const struct symbolized_sample *sample),
		   void *context)
{
	const struct perf_data_events events = { .sample = take_sample, .context = resolver };

	resolver->each = each;
	resolver->each_context = context;
	return perf_data_reader_run(resolver->reader, &events);
}

const struct perf_data_event *symbolizer_event(const struct symbolizer *resolver, size_t number)
{
	return perf_data_reader_event(resolver->reader, number);
}

/* Only our recorder's records are totals of vCPUs. */
bool symbolizer_count(const struct symbolizer *resolver, size_t number,
		      struct perf_data_count *count)
{
	const struct perf_data_summary *summary = perf_data_reader_summary(resolver->reader);

	return !strncmp(summary->version, "kvmscope ", strlen("kvmscope ")) &&
	       perf_data_reader_count(resolver->reader, number, resolver->options.vcpu, count);
}

int symbolizer_chosen(const struct symbolizer *resolver)
{
	return resolver->chosen;
}

const struct perf_data_summary *symbolizer_summary(const struct symbolizer *resolver)
{
	return perf_data_reader_summary(resolver->reader);
}

uint64_t symbolizer_lost(const struct symbolizer *resolver)
{
	return resolver->lost;
}

const char *symbolizer_note(const struct symbolizer *resolver)
{
	return *resolver->kernels[1].note ? resolver->kernels[1].note : resolver->kernels[0].note;
}

static void count_inlines(const struct image_inlines *inlines, size_t *asked, size_t *unknown)
{
	if (!inlines)
		return;
	++*asked;
	*unknown += !image_inlines_found(inlines);
}

void symbolizer_inlines(const struct symbolizer *resolver, size_t *asked, size_t *unknown)
{
	*asked = *unknown = 0;
	for (size_t i = 0; i < resolver->images.capacity; i++) {
		const struct profile_image *image = resolver->images.slots[i].item;

		if (image)
			count_inlines(image->inlines, asked, unknown);
	}
	for (size_t i = 0; i < 2; i++)
		count_inlines(resolver->kernels[i].inlines, asked, unknown);
}
