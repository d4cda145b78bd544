/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/flight_dump.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/sample_record.h"
#include "vmm/record/collector_kernel_parts.h"
#include "vmm/record/collector_output.h"
#include "vmm/resolve/resolver.h"

/* Samples per round, which readers sort as a unit; they are in order already. */
#define ROUND 65536
/* Samples between two flushes of the resolver. */
#define FLUSH_SAMPLES 4096

/* The copy of a ring, and the position in it. */
struct source {
	struct ring_snapshot snapshot;
	struct flight_deferred_reader late;
	const struct ring_record *record; /* the one that has NEXT; NULL: before the first */
	const struct sample *next;        /* in the window; NULL: none left */
	uint64_t time;                    /* of the latest sample that was read */
};

struct dump {
	struct flight_dump *request;
	struct collector_output output;
	struct source *sources; /* one per ring */
	size_t count;
	struct flight_sideband_list sideband;
	size_t passed; /* records of the list that were passed on */
	struct resolver *resolver;
	uint64_t lost;       /* samples, in the window */
	uint64_t guest_lost; /* breakpoints of the guest's own, likewise */
	int error;           /* of writing what the resolver emitted */
};

static int copy_rings(struct dump *dump)
{
	int error = 0;

	for (size_t i = 0; i < dump->count && !error; i++) {
		error = ring_snapshot(dump->request->options->rings[i], &dump->sources[i].snapshot);
		flight_deferred_begin(&dump->sources[i].late, dump->request->late, i);
	}
	return error;
}

static const struct sample *sample_of(const struct collector_options *options,
				      const struct ring_record *record)
{
	return collector_sample(record, options->output.vcpus,
				perf_data_watches_count(options->output.watches));
}

/* UINT64_MAX: none. */
static uint64_t first_time(const struct collector_options *options,
			   const struct ring_snapshot *snapshot)
{
	const struct ring_record *record = NULL;
	const struct sample *sample = NULL;

	while (!sample && (record = ring_snapshot_next(snapshot, record)))
		sample = sample_of(options, record);
	return sample ? sample->time : UINT64_MAX;
}

/* Where older samples were overwritten, it is complete from the first one left. */
static void note_complete(struct dump *dump)
{
	struct perf_data_flight *flight = dump->request->flight;

	for (size_t i = 0; i < dump->count; i++) {
		const struct ring_snapshot *snapshot = &dump->sources[i].snapshot;
		uint64_t time = first_time(dump->request->options, snapshot);

		if (snapshot->broken)
			log_warning("the copy of ring %zu ends early, at bytes that are no record",
				    i);
		if (snapshot->before && time != UINT64_MAX && time > flight->complete)
			flight->complete = time;
	}
}

static bool in_window(const struct dump *dump, uint64_t time)
{
	return time >= dump->request->flight->from && time <= dump->request->flight->to;
}

static int read_lost(struct dump *dump, struct source *source)
{
	const struct ring_lost *lost = (const void *)source->record->payload;

	if (!in_window(dump, source->time))
		return 0;
	dump->lost += lost->count;
	return perf_data_writer_lost(dump->output.writer, source->time,
				     (uint32_t)(source - dump->sources), lost->count);
}

/* A watch was throttled or unthrottled in the window. */
static int read_event(struct dump *dump, const struct source *source)
{
	const struct collector_options *options = dump->request->options;
	const struct sample_event *event =
		collector_event(source->record, options->output.vcpus,
				perf_data_watches_count(options->output.watches));

	return event && in_window(dump, event->time)
		       ? perf_data_writer_event(dump->output.writer, event)
		       : 0;
}

static void read_guest_lost(struct dump *dump, const struct source *source)
{
	const struct sample_guest_breakpoint_lost *lost =
		collector_guest_lost(source->record, dump->request->options->output.vcpus);

	if (lost && in_window(dump, lost->time))
		dump->guest_lost += lost->count;
}

/* Advances to the next sample in the window, and counts the losses before it. */
static int advance(struct dump *dump, struct source *source)
{
	int error = 0;

	source->next = NULL;
	while (!error && !source->next &&
	       (source->record = ring_snapshot_next(&source->snapshot, source->record))) {
		const struct sample *sample = sample_of(dump->request->options, source->record);

		if (source->record->type == RING_RECORD_LOST)
			error = read_lost(dump, source);
		else if (source->record->type == RECORD_EVENT)
			error = read_event(dump, source);
		else if (source->record->type == RECORD_GUEST_BREAKPOINT_LOST)
			read_guest_lost(dump, source);
		if (!sample)
			continue;
		source->time = sample->time;
		if (in_window(dump, sample->time))
			source->next = flight_deferred_find(&source->late, sample);
	}
	return error;
}

static struct source *earliest(struct dump *dump)
{
	struct source *found = NULL;

	for (size_t i = 0; i < dump->count; i++) {
		struct source *source = &dump->sources[i];

		if (source->next && (!found || source->next->time < found->next->time))
			found = source;
	}
	return found;
}

/* The resolver emits in order of time. */
static void write_sample(void *context, const struct attributed_sample *sample)
{
	struct dump *dump = context;
	struct flight_dump *request = dump->request;

	if (dump->error)
		return;
	dump->error = collector_output_sample(
		&dump->output, sample, collector_kernel_newest(request->kernel), request->jit_code);
	if (!dump->error && !(++request->samples % ROUND))
		dump->error = perf_data_writer_flush(dump->output.writer,
						     resolver_settled(dump->resolver));
}

static void write_sideband(void *context, const struct sideband *record)
{
	struct dump *dump = context;

	if (!dump->error)
		dump->error = file_state_sideband(dump->output.state, record);
}

/* Passes on the events up to TIME, before the sample of that time. */
static void pass_sideband(struct dump *dump, uint64_t time)
{
	for (; dump->passed < dump->sideband.count &&
	       dump->sideband.records[dump->passed]->time <= time;
	     dump->passed++) {
		const struct sideband *record = dump->sideband.records[dump->passed];

		resolver_begin_pass(dump->resolver, record->time);
		resolver_sideband(dump->resolver, dump->count, record);
	}
}

/* Everything goes in in order of time, so it may be flushed at any moment. */
static int pass_samples(struct dump *dump)
{
	struct source *source;
	int error = 0;

	for (size_t i = 0; i < dump->count && !error; i++)
		error = advance(dump, &dump->sources[i]);
	for (uint64_t passed = 1; !error && !dump->error && (source = earliest(dump)); passed++) {
		pass_sideband(dump, source->next->time);
		resolver_begin_pass(dump->resolver, source->next->time);
		resolver_sample(dump->resolver, (size_t)(source - dump->sources), source->next);
		error = advance(dump, source);
		if (!(passed % FLUSH_SAMPLES))
			resolver_flush(dump->resolver);
	}
	pass_sideband(dump, dump->request->flight->to);
	resolver_finish(dump->resolver);
	return error ? error : dump->error;
}

static void write_losses(struct dump *dump)
{
	struct losses losses;

	resolver_losses(dump->resolver, &losses);
	losses.counts[LOSS_RING_FULL] += dump->lost;
	losses.counts[LOSS_GUEST_BREAKPOINT] = dump->guest_lost;
	losses.counts[LOSS_SIDEBAND_DROPPED] += dump->request->sideband->missed;
	collector_output_losses(&dump->output, &losses);
	perf_data_writer_set_losses(dump->output.writer, &losses);
}

static int write_samples(struct dump *dump)
{
	struct resolver_options options = {
		.rings = dump->count + 1, /* the last one has all sideband */
		.account = dump->request->options->account,
		.images = &dump->request->kernel->boot.images,
		.reach = RESOLVER_REACH,
		.sample = write_sample,
		.sideband = write_sideband,
		.context = dump,
	};
	int error = resolver_create(&dump->resolver, &options);

	if (error)
		return error;
	error = pass_samples(dump);
	write_losses(dump);
	resolver_free(dump->resolver);
	return error;
}

/* The kernel's mappings precede the samples, so that any sample may end a round. */
static int write_content(struct dump *dump)
{
	struct flight_dump *request = dump->request;
	int error =
		collector_kernel_begin_file(request->kernel, dump->output.writer, request->path);

	if (!error)
		error = collector_kernel_finish(request->kernel);
	collector_kernel_end_file(request->kernel);
	perf_data_writer_set_flight(dump->output.writer, request->flight);
	if (!error)
		error = write_samples(dump);
	if (!error)
		error = collector_output_counts(&dump->output, request->options,
						request->flight->to);
	return error ? error : perf_data_writer_flush(dump->output.writer, UINT64_MAX);
}

/* Closes the output. */
static int write_output(struct dump *dump)
{
	int error = write_content(dump), close_error = collector_output_close(&dump->output);

	return error ? error : close_error;
}

/* An incomplete file stays, unless there is nothing of it. */
static int write_file(struct dump *dump)
{
	struct perf_data_options options = dump->request->options->output;
	const struct collector_output_options output =
		collector_output_options(dump->request->kernel);
	struct stat status;
	int error;

	options.path = dump->request->path;
	error = collector_output_open(&dump->output, &options, &output);
	if (error)
		return error;
	error = write_output(dump);
	if (!stat(options.path, &status))
		dump->request->bytes = (uint64_t)status.st_size;
	return error;
}

static void free_source(struct source *source)
{
	ring_snapshot_free(&source->snapshot);
	flight_deferred_end(&source->late);
}

/* The rings first: they are overwritten soon, and reading the kernel takes time. */
int flight_dump(struct flight_dump *request)
{
	struct dump dump = { .request = request, .count = request->options->ring_count };
	int error;

	dump.sources = calloc(dump.count + 1, sizeof(dump.sources[0]));
	if (!dump.sources)
		return error_set(-ENOMEM, "no memory for a copy of %zu rings", dump.count);
	error = copy_rings(&dump);
	if (!error)
		error = flight_sideband_export(request->sideband, &dump.sideband);
	if (!error) {
		note_complete(&dump);
		error = write_file(&dump);
	}
	for (size_t i = 0; i < dump.count; i++)
		free_source(&dump.sources[i]);
	flight_sideband_list_free(&dump.sideband);
	free(dump.sources);
	return error;
}

uint64_t flight_oldest(const struct collector_options *options)
{
	uint64_t oldest = UINT64_MAX;

	for (size_t i = 0; i < options->ring_count; i++) {
		struct ring_snapshot snapshot;
		uint64_t time;

		if (ring_snapshot(options->rings[i], &snapshot))
			return 0;
		time = first_time(options, &snapshot);
		oldest = time < oldest ? time : oldest;
		ring_snapshot_free(&snapshot);
	}
	return oldest == UINT64_MAX ? 0 : oldest;
}
