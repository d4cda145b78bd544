// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/flight_dump.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/sample.h"
#include "vmm/profile/collector_output.h"

/* So many samples make a round, which is what readers sort at a time: in order of time already. */
#define ROUND 65536

/* One ring's copy, and how far it was written. */
struct source {
	struct ring_snapshot snapshot;
	const struct ring_record *record; /* the one that NEXT is in; NULL: the first is yet to come */
	const struct sample *next;        /* in the window; NULL: there is none left */
	uint64_t time;                    /* of the latest sample that was looked at */
};

struct dump {
	struct flight_dump *request;
	struct collector_output output;
	struct source *sources; /* one for each ring */
	size_t count;
};

static int copy_rings(struct dump *dump)
{
	int error = 0;

	for (size_t i = 0; i < dump->count && !error; i++)
		error = ring_snapshot(dump->request->options->rings[i], &dump->sources[i].snapshot);
	return error;
}

static const struct sample *sample_of(const struct dump *dump, const struct ring_record *record)
{
	return collector_sample(record, dump->count, dump->request->options->output.watch_count);
}

/* Where older samples were overwritten, those from the first one on are all there. */
static void note_complete(struct dump *dump)
{
	struct perf_data_flight *flight = dump->request->flight;

	for (size_t i = 0; i < dump->count; i++) {
		const struct ring_snapshot *snapshot = &dump->sources[i].snapshot;
		const struct ring_record *record = NULL;
		const struct sample *sample = NULL;

		if (snapshot->broken)
			log_warning("the copy of ring %zu ends early, at bytes that are no record", i);
		while (snapshot->before && !sample && (record = ring_snapshot_next(snapshot, record)))
			sample = sample_of(dump, record);
		if (sample && sample->time > flight->complete)
			flight->complete = sample->time;
	}
}

static int take_lost(struct dump *dump, struct source *source)
{
	const struct perf_data_flight *flight = dump->request->flight;
	const struct ring_lost *lost = (const void *)source->record->payload;

	if (source->time < flight->from || source->time > flight->to)
		return 0;
	return collector_output_lost(&dump->output, source->time, (uint32_t)(source - dump->sources),
				     lost->count);
}

/* Goes on to the next sample in the window, past what was lost before it. */
static int advance(struct dump *dump, struct source *source)
{
	const struct perf_data_flight *flight = dump->request->flight;
	int error = 0;

	source->next = NULL;
	while (!error && !source->next &&
	       (source->record = ring_snapshot_next(&source->snapshot, source->record))) {
		const struct sample *sample = sample_of(dump, source->record);

		if (source->record->type == RING_RECORD_LOST)
			error = take_lost(dump, source);
		if (!sample)
			continue;
		source->time = sample->time;
		if (sample->time >= flight->from && sample->time <= flight->to)
			source->next = sample;
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

static int write_samples(struct dump *dump)
{
	struct source *source;
	int error = 0;

	for (size_t i = 0; i < dump->count && !error; i++)
		error = advance(dump, &dump->sources[i]);
	while (!error && (source = earliest(dump))) {
		error = collector_output_sample(&dump->output, source->next);
		if (!error && !(++dump->request->samples % ROUND))
			error = perf_data_writer_flush(dump->output.writer);
		if (!error)
			error = advance(dump, source);
	}
	return error;
}

/* Mappings come before the samples, so that any of them may end a round. */
static int write_content(struct dump *dump)
{
	struct flight_dump *request = dump->request;
	int error = collector_kernel_begin_file(request->kernel, dump->output.writer, request->path);

	if (!error)
		error = collector_kernel_finish(request->kernel);
	collector_kernel_end_file(request->kernel);
	perf_data_writer_set_flight(dump->output.writer, request->flight);
	if (!error)
		error = write_samples(dump);
	return error ? error : perf_data_writer_flush(dump->output.writer);
}

static int write_file(struct dump *dump)
{
	struct perf_data_options options = dump->request->options->output;
	struct stat status;
	int error, close_error;

	options.path = dump->request->path;
	error = collector_output_open(&dump->output, &options);
	if (error)
		return error;
	error = write_content(dump);
	close_error = collector_output_close(&dump->output);
	if (!stat(options.path, &status))
		dump->request->bytes = (uint64_t)status.st_size;
	return error ? error : close_error;
}

/* The rings first: what they hold now is gone soon, and reading the kernel takes time. */
int flight_dump(struct flight_dump *request)
{
	struct dump dump = { .request = request, .count = request->options->ring_count };
	int error;

	dump.sources = calloc(dump.count + 1, sizeof(dump.sources[0]));
	if (!dump.sources)
		return error_set(-ENOMEM, "no memory for a copy of %zu rings", dump.count);
	error = copy_rings(&dump);
	if (!error) {
		note_complete(&dump);
		error = write_file(&dump);
	}
	for (size_t i = 0; i < dump.count; i++)
		ring_snapshot_free(&dump.sources[i].snapshot);
	free(dump.sources);
	return error;
}
