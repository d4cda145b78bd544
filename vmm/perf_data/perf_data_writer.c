/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_writer_state.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/error.h"

int perf_data_writer_no_memory(void)
{
	return error_set(-ENOMEM, "no memory to write perf.data");
}

static char *copy_string(const char *string)
{
	return strdup(string ? string : "");
}

static int collect_facts(struct perf_data_facts *facts, const struct perf_data_options *options)
{
	facts->hostname = copy_string(options->hostname);
	facts->release = copy_string(options->release);
	facts->cpu_description = copy_string(options->cpu_description);
	facts->cpuid = copy_string(options->cpuid);
	facts->command_line = copy_string(options->command_line);
	if (!facts->hostname || !facts->release || !facts->cpu_description || !facts->cpuid ||
	    !facts->command_line)
		return perf_data_writer_no_memory();
	facts->event_name = options->cycles       ? "cycles"
			    : options->wall_clock ? "wall-clock"
						  : "cpu-clock";
	facts->memory_kib = options->memory_kib;
	facts->cpus = options->cpus ? options->cpus : options->vcpus;
	facts->ids = options->vcpus;
	facts->compression = options->compression;
	facts->ratio = 1;
	facts->wall_time = clock_ns(CLOCK_REALTIME);
	facts->clock_time = clock_ns(CLOCK_MONOTONIC_RAW);
	perf_data_describe_event(&facts->attribute, options);
	return 0;
}

/* Adds the next watch, which the file does not have yet. */
static int add_watch(struct perf_data_facts *facts, const struct perf_data_watches *watches)
{
	const struct perf_data_watch *watch = &watches->list[facts->more_count];
	struct perf_data_more_event *more = &facts->more[facts->more_count];

	more->name = copy_string(watch->name);
	if (!more->name)
		return perf_data_writer_no_memory();
	perf_data_describe_watch(&more->attribute, &facts->attribute, watch);
	facts->more_count++;
	return 0;
}

static int collect_watches(struct perf_data_facts *facts, const struct perf_data_watches *watches)
{
	int error = 0;

	if (!watches)
		return 0;
	facts->more_room = PERF_DATA_WATCHES_MAX;
	facts->more = calloc(facts->more_room, sizeof(facts->more[0]));
	if (!facts->more)
		return perf_data_writer_no_memory();
	while (!error && facts->more_count < perf_data_watches_count(watches))
		error = add_watch(facts, watches);
	return error;
}

static void free_writer(struct perf_data_writer *writer)
{
	for (size_t i = 0; i < writer->facts.more_count; i++)
		free(writer->facts.more[i].name);
	free(writer->facts.more);
	free(writer->facts.hostname);
	free(writer->facts.release);
	free(writer->facts.cpu_description);
	free(writer->facts.cpuid);
	free(writer->facts.command_line);
	free(writer->facts.build_ids.data);
	free(writer->record.data);
	free(writer);
}

static int write_host(struct perf_data_writer *writer, const struct perf_data_options *options)
{
	int error = 0;

	for (size_t i = 0; i < options->host_count && !error; i++)
		error = perf_data_writer_mapping(writer, &options->host[i]);
	return error;
}

static int open_writer(struct perf_data_writer *writer, const struct perf_data_options *options)
{
	int error = collect_facts(&writer->facts, options);

	if (!error)
		error = collect_watches(&writer->facts, options->watches);
	writer->watches = options->watches;
	writer->perspective = options->perspective;
	writer->callchains = options->callchains;
	writer->vmm_pid = options->vmm_pid;
	if (!error)
		error = perf_data_output_open(&writer->output, options->path, options->compression);
	if (error)
		return error;
	perf_data_output_set_room(writer->output, options->room);
	error = perf_data_start(writer);
	if (!error)
		error = write_host(writer, options);
	if (error)
		perf_data_output_close(writer->output);
	return error;
}

int perf_data_writer_open(struct perf_data_writer **result, const struct perf_data_options *options)
{
	struct perf_data_writer *writer;
	int error;

	/* The ids of all vCPUs must fit into one record; 22 is zstd's highest level. */
	if (!options->vcpus || options->vcpus > 1024 || options->compression > 22)
		return error_set(-EINVAL,
				 "cannot write perf.data of %u vCPUs with compression level %u",
				 options->vcpus, options->compression);
	writer = calloc(1, sizeof(*writer));
	if (!writer)
		return perf_data_writer_no_memory();
	error = open_writer(writer, options);
	if (error)
		free_writer(writer);
	else
		*result = writer;
	return error;
}

void perf_data_writer_begin(struct perf_data_writer *writer, uint32_t type, uint16_t misc)
{
	struct perf_event_header header = { .type = type, .misc = misc };

	THREAD_CHECK(&writer->thread);
	writer->record.size = 0;
	bytes_add(&writer->record, &header, sizeof(header));
}

int perf_data_writer_end(struct perf_data_writer *writer)
{
	struct bytes *record = &writer->record;
	uint16_t size = (uint16_t)record->size;

	if (record->failed)
		return perf_data_writer_no_memory();
	if (record->size > PERF_DATA_RECORD_MAX)
		return error_set(-EINVAL, "a record of %zu bytes is too large for perf.data",
				 record->size);
	memcpy(record->data + offsetof(struct perf_event_header, size), &size, sizeof(size));
	return perf_data_output_record(writer->output, record->data, record->size);
}

int perf_data_writer_update_watches(struct perf_data_writer *writer)
{
	size_t before = writer->facts.more_count, count = perf_data_watches_count(writer->watches);
	int error = 0;

	THREAD_CHECK(&writer->thread);
	for (size_t i = 0; i < before && !error; i++) {
		struct perf_event_attr *attribute = &writer->facts.more[i].attribute;
		uint64_t address = perf_data_watch_address(&writer->watches->list[i]);

		if (attribute->bp_addr == address)
			continue;
		attribute->bp_addr = address;
		error = perf_data_start_change(writer, i + 1);
	}
	while (!error && writer->facts.more_count < count) {
		error = add_watch(&writer->facts, writer->watches);
		if (!error)
			error = perf_data_start_event(writer);
	}
	return error;
}

static int write_fact(struct perf_data_writer *writer, enum perf_data_feature feature)
{
	writer->record.size = 0;
	perf_data_feature_record(&writer->facts, feature, &writer->record);
	if (writer->record.failed)
		return perf_data_writer_no_memory();
	if (!writer->record.size)
		return 0;
	return perf_data_output_record(writer->output, writer->record.data, writer->record.size);
}

static int replace_fact(struct perf_data_writer *writer, char **fact, const char *value,
			enum perf_data_feature feature)
{
	char *copy;

	if (!value || !strcmp(*fact, value))
		return 0;
	copy = strdup(value);
	if (!copy)
		return perf_data_writer_no_memory();
	free(*fact);
	*fact = copy;
	return write_fact(writer, feature);
}

void perf_data_writer_release(struct perf_data_writer *writer)
{
	thread_check_release(&writer->thread);
}

int perf_data_writer_set_guest(struct perf_data_writer *writer, const char *release,
			       const char *hostname)
{
	int error;

	THREAD_CHECK(&writer->thread);
	error = replace_fact(writer, &writer->facts.release, release, FEATURE_OSRELEASE);
	return error ? error
		     : replace_fact(writer, &writer->facts.hostname, hostname, FEATURE_HOSTNAME);
}

void perf_data_writer_set_flight(struct perf_data_writer *writer,
				 const struct perf_data_flight *flight)
{
	THREAD_CHECK(&writer->thread);
	writer->flight = flight;
}

void perf_data_writer_hide_kernel(struct perf_data_writer *writer)
{
	THREAD_CHECK(&writer->thread);
	writer->kernel_hidden = true;
}

void perf_data_writer_set_losses(struct perf_data_writer *writer, const struct losses *losses)
{
	THREAD_CHECK(&writer->thread);
	writer->losses = *losses;
}

void perf_data_writer_set_times(struct perf_data_writer *writer,
				const struct perf_data_times *times)
{
	THREAD_CHECK(&writer->thread);
	writer->times = *times;
}

/* Starts a block, whose size end_block() sets; returns its position. */
static size_t begin_block(struct bytes *record, uint64_t tag)
{
	bytes_add_u64(record, tag);
	bytes_add_u64(record, 0);
	return record->size;
}

static void end_block(struct bytes *record, size_t begun)
{
	uint64_t size;

	bytes_pad(record, 8);
	size = record->size - begun;
	if (!record->failed)
		memcpy(record->data + begun - sizeof(size), &size, sizeof(size));
}

static void add_blocks(struct perf_data_writer *writer)
{
	struct bytes *record = &writer->record;
	size_t begun;

	if (losses_any(&writer->losses)) {
		begun = begin_block(record, PERF_DATA_BLOCK_LOSSES);
		perf_data_losses_add(record, &writer->losses);
		end_block(record, begun);
	}
	if (writer->times.states) {
		begun = begin_block(record, PERF_DATA_BLOCK_TIMES);
		perf_data_times_add(record, &writer->times);
		end_block(record, begun);
	}
	if (writer->flight) {
		begun = begin_block(record, PERF_DATA_BLOCK_FLIGHT);
		perf_data_flight_add(record, writer->flight);
		end_block(record, begun);
	}
}

static int end_round(struct perf_data_writer *writer)
{
	writer->round_latest = writer->latest;
	perf_data_writer_begin(writer, PERF_DATA_FINISHED_ROUND, 0);
	add_blocks(writer);
	return perf_data_writer_end(writer);
}

int perf_data_writer_write_out(struct perf_data_writer *writer)
{
	int error = perf_data_writer_update_watches(writer);

	return error ? error : perf_data_output_flush(writer->output);
}

int perf_data_writer_flush(struct perf_data_writer *writer, uint64_t settled)
{
	int error = settled >= writer->round_latest ? end_round(writer) : 0;

	return error ? error : perf_data_writer_write_out(writer);
}

/* The sections follow the data; the header refers to them after they are written. */
static int write_sections(struct perf_data_writer *writer)
{
	uint64_t bitmap[4] = { 0 };
	struct bytes sections = { 0 };
	int error;

	writer->facts.ratio = perf_data_output_ratio(writer->output);
	perf_data_feature_sections(&writer->facts, perf_data_output_bytes(writer->output),
				   &sections, bitmap);
	error = sections.failed
			? perf_data_writer_no_memory()
			: perf_data_output_finish(writer->output, sections.data, sections.size,
						  bitmap, sizeof(bitmap),
						  offsetof(struct perf_data_header, features));
	free(sections.data);
	return error;
}

int perf_data_writer_close(struct perf_data_writer *writer)
{
	/* The last counts and times are in a round, which pipes have too. */
	int error = losses_any(&writer->losses) || writer->times.states || writer->flight
			    ? perf_data_writer_flush(writer, UINT64_MAX)
			    : perf_data_writer_write_out(writer);
	int close_error;

	if (!error && !perf_data_output_is_pipe(writer->output))
		error = write_sections(writer);
	close_error = perf_data_output_close(writer->output);
	free_writer(writer);
	return error ? error : close_error;
}

uint64_t perf_data_writer_bytes(const struct perf_data_writer *writer)
{
	return perf_data_output_bytes(writer->output);
}
