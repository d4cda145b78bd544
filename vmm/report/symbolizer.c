/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/symbolizer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/option_table.h"
#include "shared/parse_number.h"
#include "shared/printable.h"
#include "vmm/report/symbolizer_state.h"

int symbolizer_out_of_memory(const struct symbolizer *symbolizer)
{
	return error_set(-ENOMEM, "no memory for the profile in %s", symbolizer->options.input);
}

/* Calls per check, so that reading the clock costs little. */
#define CHECK_INTERVAL 64

int symbolizer_check(void *context)
{
	struct symbolizer *symbolizer = context;
	const struct profile_options *options = &symbolizer->options;

	if (symbolizer->checks++ % CHECK_INTERVAL)
		return 0;
	if (options->cancel && atomic_load(options->cancel))
		return error_set(-ECANCELED, "reading %s was canceled", options->input);
	if (options->cpu_limit &&
	    clock_ns(CLOCK_THREAD_CPUTIME_ID) - symbolizer->started > options->cpu_limit)
		return error_set(-ETIME, "%s takes more than %.1f s of CPU time to symbolize",
				 options->input, (double)options->cpu_limit / NS_PER_S);
	return 0;
}

static int report_events(const struct symbolizer *symbolizer)
{
	const char *names[65] = { NULL }, *wanted = symbolizer->options.event, *closest;
	char text[512] = "";
	const struct perf_data_event *event;
	size_t used = 0;

	for (size_t i = 0; (event = symbolizer_event(symbolizer, i)) && used < sizeof(text); i++) {
		const char *name = event->name ? event->name : "";

		if (i < sizeof(names) / sizeof(names[0]) - 1)
			names[i] = name;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%zu %s",
					 i ? ", " : "", i, name);
	}
	closest = option_closest(wanted, names);
	if (closest && used < sizeof(text))
		snprintf(text + used, sizeof(text) - used, "; did you mean %s?", closest);
	make_printable(text);
	return error_set(-ENXIO, "no event %s in %s; its events are %s", wanted,
			 symbolizer->options.input, text);
}

/* Selects the event by name, else by number. */
static int choose_event(struct symbolizer *symbolizer)
{
	const char *wanted = symbolizer->options.event;
	const struct perf_data_event *event;
	const char *end;
	uint64_t number;

	symbolizer->chosen = -1;
	if (!wanted)
		return 0;
	for (size_t i = 0; (event = symbolizer_event(symbolizer, i)); i++)
		if (event->name && !strcmp(event->name, wanted)) {
			symbolizer->chosen = (int)i;
			return 0;
		}
	end = parse_decimal(wanted, INT_MAX, &number);
	if (!end || *end || !symbolizer_event(symbolizer, number))
		return report_events(symbolizer);
	symbolizer->chosen = (int)number;
	return 0;
}

static int open_input(struct symbolizer *symbolizer)
{
	const char *path = profile_input_open(&symbolizer->input, symbolizer->options.input);

	return path ? perf_data_reader_open(&symbolizer->reader, path) : -EIO;
}

int symbolizer_open(struct symbolizer **opened, const struct profile_options *options)
{
	struct symbolizer *symbolizer = calloc(1, sizeof(*symbolizer));
	int error = -ENOMEM;

	if (!symbolizer)
		return error_set(-ENOMEM, "no memory for the profile in %s", options->input);
	symbolizer->options = *options;
	if (options->times)
		symbolizer->times = *options->times;
	symbolizer->input.fd = -1;
	symbolizer->started = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	symbolizer->kernels[1].guest = true;
	symbolizer->timeline = profile_timeline_new(&symbolizer->pool);
	symbolizer->unknown = pool_string(&symbolizer->pool, "[unknown]");
	symbolizer->none = pool_string(&symbolizer->pool, "");
	if (!symbolizer->timeline || !symbolizer->unknown || !symbolizer->none ||
	    profile_frame_cache_open(&symbolizer->cache))
		error = symbolizer_out_of_memory(symbolizer);
	else
		error = open_input(symbolizer);
	if (!error)
		error = symbolizer_read_sideband(symbolizer);
	if (!error)
		error = choose_event(symbolizer);
	if (error)
		symbolizer_close(symbolizer);
	else
		*opened = symbolizer;
	return error;
}

void symbolizer_close(struct symbolizer *symbolizer)
{
	if (!symbolizer)
		return;
	for (size_t i = 0; i < symbolizer->images.capacity; i++) {
		struct profile_image *image = symbolizer->images.slots[i].item;

		if (!image)
			continue;
		symbols_free(image->symbols);
		image_inlines_free(image->inlines);
	}
	for (size_t i = 0; i < 2; i++) {
		symbols_free(symbolizer->kernels[i].symbols);
		image_inlines_free(symbolizer->kernels[i].inlines);
		hash_table_free(&symbolizer->kernels[i].modules);
	}
	if (symbolizer->reader)
		perf_data_reader_close(symbolizer->reader);
	profile_input_close(&symbolizer->input);
	profile_frame_cache_close(&symbolizer->cache);
	profile_timeline_free(symbolizer->timeline);
	hash_table_free(&symbolizer->images);
	hash_table_free(&symbolizer->build_ids);
	hash_table_free(&symbolizer->cgroups);
	hash_table_free(&symbolizer->frames);
	pool_free(&symbolizer->pool);
	free(symbolizer);
}

/* An address space at a sample's time. */
struct view {
	uint16_t mode;
	const struct profile_space *space;
	uint32_t epoch;
	uint32_t id; /* for the cache; near UINT32_MAX without a space */
};

/* Of ADDRESS in MODE. In the guest's perspective, the host is the other machine, and its addresses
 * have one mode. */
static struct view view_of(const struct symbolizer *symbolizer,
			   const struct perf_data_sample *sample, uint16_t mode, uint64_t address)
{
	bool host = mode == PERF_RECORD_MISC_HYPERVISOR;
	struct view view;

	if (host)
		mode = address >> 63 ? PERF_RECORD_MISC_GUEST_KERNEL : PERF_RECORD_MISC_GUEST_USER;
	view = (struct view){ .mode = mode, .id = UINT32_MAX - is_kernel_mode(mode) };

	if (mode == PERF_RECORD_MISC_CPUMODE_UNKNOWN)
		return view; /* in no space, because the mapping is uncertain */
	view.space = profile_timeline_space(symbolizer->timeline, is_guest_mode(mode),
					    is_kernel_mode(mode) ? PROFILE_KERNEL
					    : host               ? PERF_DATA_HOST_PID
								 : (int32_t)sample->pid,
					    sample->time);
	if (view.space) {
		view.epoch = profile_space_epoch(view.space, sample->time);
		view.id = view.space->id;
	}
	return view;
}

static void push(struct symbolizer *symbolizer, const struct profile_frame *frame, uint64_t own,
		 size_t *depth)
{
	if (*depth < PROFILE_DEPTH_MAX)
		symbolizer->stack[(*depth)++] =
			(struct symbolized_frame){ .frame = frame, .own = own };
}

/* Adds the inlined functions at ADDRESS and the function they are inlined into. CALLER: ADDRESS is
 * a return address. */
static int add_frame(struct symbolizer *symbolizer, const struct view *view, uint64_t address,
		     bool caller, size_t *depth)
{
	struct profile_frame_cache_entry *entry;

	if (*depth == PROFILE_DEPTH_MAX)
		return 0;
	entry = profile_frame_cache_entry(&symbolizer->cache, address, view->id, view->epoch,
					  caller && symbolizer->options.inlined);
	if (!entry)
		return symbolizer_out_of_memory(symbolizer);
	if (!entry->frame) {
		int error = symbolizer_check(symbolizer);

		if (error)
			return error;
		if (symbolizer_resolve(symbolizer, view->space, is_kernel_mode(view->mode), entry))
			return symbolizer_out_of_memory(symbolizer);
	}
	for (size_t i = 0; i < entry->inlined_count; i++)
		push(symbolizer, entry->inlined[i], entry->own, depth);
	push(symbolizer, entry->frame, entry->own, depth);
	return 0;
}

/* The mode after a call chain marker; 0: unknown. */
static uint16_t mode_after(uint64_t marker)
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

static int add_host_frame(struct symbolizer *symbolizer, size_t *depth)
{
	const struct profile_frame *frame = symbolizer_host_frame(symbolizer);

	if (!frame)
		return symbolizer_out_of_memory(symbolizer);
	push(symbolizer, frame, 0, depth);
	return 0;
}

static int add_reason(struct symbolizer *symbolizer, const char *reason, size_t *depth)
{
	const struct profile_frame *frame = symbolizer_reason_frame(symbolizer, reason);

	if (!frame)
		return symbolizer_out_of_memory(symbolizer);
	push(symbolizer, frame, 0, depth);
	return 0;
}

/* True if the host's part of a call chain ends with MARKER. */
static bool ends_host(uint16_t mode, uint64_t marker)
{
	return mode == PERF_RECORD_MISC_HYPERVISOR && marker != (uint64_t)PERF_CONTEXT_HV;
}

/*
 * Adds the call chain without its first entry, the sampled address in VIEW. The first entry of each
 * mode is an instruction pointer, the others are return addresses. REASON, unless NULL, is where
 * the host's entries end.
 */
static int add_callchain(struct symbolizer *symbolizer, const struct perf_data_sample *sample,
			 struct view view, const char *reason, size_t *depth)
{
	bool first = true, caller = false;
	uint16_t mode = sample->misc;
	int error = 0;

	for (size_t i = 0; i < sample->callchain_size && !error; i++) {
		uint64_t address = sample->callchain[i];
		bool marker = address >= PERF_CONTEXT_MAX;

		if (marker && reason && ends_host(mode, address)) {
			error = add_reason(symbolizer, reason, depth);
			reason = NULL;
		}
		if (marker ? mode_after(address) != mode : mode == PERF_RECORD_MISC_HYPERVISOR) {
			mode = marker ? mode_after(address) : mode;
			if (!mode)
				break;
			view = view_of(symbolizer, sample, mode, address);
		}
		if (!marker && (!first || address != sample->ip) && !error)
			error = add_frame(symbolizer, &view, address, caller, depth);
		first = first && marker;
		caller = !marker;
	}
	return reason && !error ? add_reason(symbolizer, reason, depth) : error;
}

static int add_frames(struct symbolizer *symbolizer, const struct perf_data_sample *sample,
		      size_t *depth)
{
	struct view view = view_of(symbolizer, sample, sample->misc, sample->ip);
	int error;

	if (sample->misc == PERF_RECORD_MISC_HYPERVISOR && !symbolizer->has_host)
		return add_host_frame(symbolizer, depth);
	if (sample->reason && !sample->is_host) {
		error = add_reason(symbolizer, sample->reason, depth);
		if (error || symbolizer->options.leaves_only)
			return error;
	}
	error = add_frame(symbolizer, &view, sample->ip, false, depth);
	if (!error && !symbolizer->options.leaves_only)
		error = add_callchain(symbolizer, sample, view,
				      sample->is_host ? sample->reason : NULL, depth);
	return error;
}

/* The name of the program, which threads cannot change by setting their comm. */
static const char *app_of(const struct symbolizer *symbolizer,
			  const struct perf_data_sample *sample, const char *comm)
{
	const struct profile_image *program =
		profile_timeline_program(symbolizer->timeline, sample->pid, sample->time);

	return program ? program->name : comm;
}

static void set_cgroup(const struct symbolizer *symbolizer, struct symbolized_sample *sample)
{
	uint64_t id = sample->recorded->cgroup;
	const struct profile_cgroup *cgroup = id ? symbolizer_cgroup(symbolizer, id) : NULL;

	sample->cgroup = cgroup ? cgroup->path : symbolizer->none;
	sample->container = cgroup ? cgroup->container : symbolizer->none;
}

static int on_sample(void *context, const struct perf_data_sample *sample)
{
	struct symbolizer *symbolizer = context;
	uint32_t vcpu = sample->vcpu != UINT32_MAX ? sample->vcpu : sample->cpu;
	struct symbolized_sample resolved = { .recorded = sample,
					      .frames = symbolizer->stack,
					      .vcpu = vcpu };
	int error;

	symbolizer->samples++;
	if ((symbolizer->chosen >= 0 && sample->event != symbolizer->chosen) ||
	    (symbolizer->options.vcpu >= 0 && vcpu != (uint32_t)symbolizer->options.vcpu) ||
	    !time_ranges_have(&symbolizer->times, sample->time))
		return 0;
	error = add_frames(symbolizer, sample, &resolved.depth);
	if (error)
		return error;
	resolved.comm = profile_timeline_comm_of(symbolizer->timeline, sample->tid, sample->time);
	resolved.app = app_of(symbolizer, sample, resolved.comm);
	set_cgroup(symbolizer, &resolved);
	resolved.tid = symbolizer->options.threads ? sample->tid : 0;
	return symbolizer->each ? symbolizer->each(symbolizer->each_context, &resolved) : 0;
}

/* Warns about a recording without its end. -ENODATA if it has no sample. */
static int check_whole(const struct symbolizer *symbolizer)
{
	const struct perf_data_summary *summary = perf_data_reader_summary(symbolizer->reader);
	const char *path = symbolizer->options.input;

	if (!summary->cut_off)
		return 0;
	if (!symbolizer->samples)
		return error_set(-ENODATA,
				 "%s is cut off, or still being recorded, and has no sample yet",
				 path);
	if (summary->missing)
		log_warning("%s is cut off: %llu samples are shown, %llu bytes are missing", path,
			    (unsigned long long)symbolizer->samples,
			    (unsigned long long)summary->missing);
	else
		log_warning("%s is cut off, or still being recorded: %llu samples are shown", path,
			    (unsigned long long)symbolizer->samples);
	return 0;
}

int symbolizer_run(struct symbolizer *symbolizer,
		   int (*each)(void *context, const struct symbolized_sample *sample),
		   void *context)
{
	const struct perf_data_events events = { .sample = on_sample,
						 .check = symbolizer_check,
						 .context = symbolizer };
	int error;

	symbolizer->samples = 0;
	symbolizer->each = each;
	symbolizer->each_context = context;
	error = perf_data_reader_run(symbolizer->reader, &events);
	return error ? error : check_whole(symbolizer);
}

const struct perf_data_event *symbolizer_event(const struct symbolizer *symbolizer, size_t number)
{
	return perf_data_reader_event(symbolizer->reader, number);
}

/* Only kvmscope's READ records are totals per vCPU. */
bool symbolizer_count(const struct symbolizer *symbolizer, size_t number,
		      struct perf_data_count *count)
{
	const struct perf_data_summary *summary = perf_data_reader_summary(symbolizer->reader);

	/* The count is that of all times. */
	return !symbolizer->times.count &&
	       !strncmp(summary->version, "kvmscope ", strlen("kvmscope ")) &&
	       perf_data_reader_count(symbolizer->reader, number, symbolizer->options.vcpu, count);
}

int symbolizer_chosen(const struct symbolizer *symbolizer)
{
	return symbolizer->chosen;
}

const struct perf_data_summary *symbolizer_summary(const struct symbolizer *symbolizer)
{
	return perf_data_reader_summary(symbolizer->reader);
}

uint64_t symbolizer_lost(const struct symbolizer *symbolizer)
{
	return symbolizer->lost;
}

const char *symbolizer_note(const struct symbolizer *symbolizer)
{
	return *symbolizer->kernels[1].note ? symbolizer->kernels[1].note
					    : symbolizer->kernels[0].note;
}

static void count_inlines(const struct image_inlines *inlines, size_t *images, size_t *unknown)
{
	if (!inlines)
		return;
	++*images;
	*unknown += !image_inlines_found(inlines);
}

void symbolizer_inlines(const struct symbolizer *symbolizer, size_t *images, size_t *unknown)
{
	*images = *unknown = 0;
	for (size_t i = 0; i < symbolizer->images.capacity; i++) {
		const struct profile_image *image = symbolizer->images.slots[i].item;

		if (image)
			count_inlines(image->inlines, images, unknown);
	}
	for (size_t i = 0; i < 2; i++)
		count_inlines(symbolizer->kernels[i].inlines, images, unknown);
}
