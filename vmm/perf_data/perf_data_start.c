/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_writer_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/error.h"

/* Readers whose attribute is smaller refuse the file; Linux 4.1 has this size. */
#define ATTRIBUTE_SIZE PERF_ATTR_SIZE_VER5

/* The host's perspective has no CPU field: the host CPU that ran the vCPU is unknown, and the index
 * of ids has the vCPU. */
void perf_data_describe_event(struct perf_event_attr *attribute,
			      const struct perf_data_options *options)
{
	*attribute = (struct perf_event_attr){
		.type = options->cycles ? PERF_TYPE_HARDWARE : PERF_TYPE_SOFTWARE,
		.size = ATTRIBUTE_SIZE,
		.config = options->cycles ? PERF_COUNT_HW_CPU_CYCLES : PERF_COUNT_SW_CPU_CLOCK,
		.sample_freq = options->frequency,
		.freq = 1,
		.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
			       PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD,
		/* For READ records; older perfs need the same for all events. */
		.read_format = PERF_FORMAT_ID | PERF_FORMAT_TOTAL_TIME_ENABLED |
			       PERF_FORMAT_TOTAL_TIME_RUNNING,
		.sample_id_all = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.build_id = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
		.exclude_host = options->perspective == PERSPECTIVE_HOST && !options->host_samples,
	};
	if (options->perspective == PERSPECTIVE_GUEST)
		attribute->sample_type |= PERF_SAMPLE_CPU | PERF_SAMPLE_CGROUP;
	attribute->cgroup = options->perspective == PERSPECTIVE_GUEST;
	if (options->callchains)
		attribute->sample_type |= PERF_SAMPLE_CALLCHAIN;
	if (options->host_stacks)
		attribute->sample_type |= PERF_SAMPLE_RAW;
}

/* The reason is raw data, as of a sample that a BPF program has written: perf script shows it. */
static void describe_outside(struct perf_event_attr *attribute, const struct perf_event_attr *clock)
{
	*attribute = *clock;
	attribute->type = PERF_TYPE_SOFTWARE;
	attribute->config = PERF_COUNT_SW_BPF_OUTPUT;
	attribute->sample_type |= PERF_SAMPLE_RAW;
	attribute->mmap = attribute->mmap2 = attribute->comm = attribute->cgroup = 0;
}

/* The values before and after are raw data: struct perf_data_hit_values. */
void perf_data_describe_watch(struct perf_event_attr *attribute,
			      const struct perf_event_attr *clock,
			      const struct perf_data_watch *watch)
{
	if (watch->outside) {
		describe_outside(attribute, clock);
		return;
	}
	*attribute = *clock;
	attribute->type = PERF_TYPE_BREAKPOINT;
	attribute->config = 0;
	attribute->freq = 0;
	attribute->sample_period = watch->period;
	attribute->bp_type = watch->type;
	attribute->bp_addr = perf_data_watch_address(watch);
	attribute->bp_len = watch->length;
	attribute->sample_type |= PERF_SAMPLE_ADDR | PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_INTR;
	attribute->sample_regs_intr = PERF_DATA_HIT_REGISTERS;
	/* Only the first event of a recording requests these. */
	attribute->mmap = attribute->mmap2 = attribute->comm = attribute->cgroup = 0;
}

/* Maps ids to vCPUs of the machine (perf since 5.19); FIRST_ID is that of vCPU 0. */
static void add_id_index(uint64_t first_id, uint64_t count, pid_t vmm_pid, struct bytes *to)
{
	struct perf_event_header header = { .type = PERF_DATA_ID_INDEX };

	header.size = (uint16_t)(sizeof(header) + sizeof(count) +
				 count * (sizeof(struct perf_data_id_entry) +
					  sizeof(struct perf_data_id_guest)));
	bytes_add(to, &header, sizeof(header));
	bytes_add_u64(to, count);
	for (uint64_t i = 0; i < count; i++)
		bytes_add(to,
			  &(struct perf_data_id_entry){ first_id + i, i, UINT64_MAX, UINT64_MAX },
			  sizeof(struct perf_data_id_entry));
	for (uint64_t i = 0; i < count; i++)
		bytes_add(to, &(struct perf_data_id_guest){ (uint64_t)vmm_pid, i },
			  sizeof(struct perf_data_id_guest));
}

/* Event 0 is the clock; the others follow. */
static size_t event_count(const struct perf_data_facts *facts)
{
	return 1 + facts->more_count;
}

static const struct perf_event_attr *attribute_of(const struct perf_data_facts *facts, size_t event)
{
	return event ? &facts->more[event - 1].attribute : &facts->attribute;
}

static uint64_t first_id_of(const struct perf_data_facts *facts, size_t event)
{
	return 1 + event * facts->ids;
}

static void add_ids(const struct perf_data_facts *facts, size_t event, struct bytes *to)
{
	for (uint64_t i = 0; i < facts->ids; i++)
		bytes_add_u64(to, first_id_of(facts, event) + i);
}

static void add_first_records(const struct perf_data_writer *writer, struct bytes *to)
{
	const struct perf_data_facts *facts = &writer->facts;

	perf_data_feature_records(facts, to);
	for (size_t event = 0;
	     event < event_count(facts) && writer->perspective == PERSPECTIVE_HOST; event++)
		add_id_index(first_id_of(facts, event), facts->ids, writer->vmm_pid, to);
}

static void add_pipe_attribute(const struct perf_data_facts *facts, size_t event, struct bytes *to)
{
	struct perf_event_header header = {
		.type = PERF_DATA_HEADER_ATTR,
		.size = (uint16_t)(sizeof(header) + ATTRIBUTE_SIZE + facts->ids * sizeof(uint64_t)),
	};

	bytes_add(to, &header, sizeof(header));
	bytes_add(to, attribute_of(facts, event), ATTRIBUTE_SIZE);
	add_ids(facts, event, to);
}

static int start_pipe(const struct perf_data_writer *writer)
{
	struct perf_data_pipe_header pipe_header = { PERF_DATA_MAGIC, sizeof(pipe_header) };
	struct bytes head = { 0 };
	int error;

	bytes_add(&head, &pipe_header, sizeof(pipe_header));
	for (size_t event = 0; event < event_count(&writer->facts); event++)
		add_pipe_attribute(&writer->facts, event, &head);
	add_first_records(writer, &head);
	error = head.failed ? perf_data_writer_no_memory()
			    : perf_data_output_start(writer->output, head.data, head.size, 0);
	free(head.data);
	return error;
}

/* An entry of the attribute section: the attribute and the section of its ids. */
#define ATTRIBUTE_ENTRY (ATTRIBUTE_SIZE + sizeof(struct perf_data_section))

/* Order in the file: header, attributes, ids of each event, data. */
static uint64_t attribute_offset(size_t event)
{
	return sizeof(struct perf_data_header) + event * ATTRIBUTE_ENTRY;
}

static size_t event_room(const struct perf_data_facts *facts)
{
	return 1 + facts->more_room;
}

static void add_attribute(const struct perf_data_facts *facts, size_t event, struct bytes *to)
{
	uint64_t size = facts->ids * sizeof(uint64_t);
	struct perf_data_section ids = { attribute_offset(event_room(facts)) + event * size, size };

	bytes_add(to, attribute_of(facts, event), ATTRIBUTE_SIZE);
	bytes_add(to, &ids, sizeof(ids));
}

/* Ids are written for the events to come, too. */
static void add_attributes(const struct perf_data_facts *facts, struct bytes *to)
{
	for (size_t event = 0; event < event_count(facts); event++)
		add_attribute(facts, event, to);
	bytes_add_zeros(to, (event_room(facts) - event_count(facts)) * ATTRIBUTE_ENTRY);
	for (size_t event = 0; event < event_room(facts); event++)
		add_ids(facts, event, to);
}

static int start_file(const struct perf_data_writer *writer)
{
	struct perf_data_header header = {
		.magic = PERF_DATA_MAGIC,
		.size = sizeof(header),
		.attribute_size = ATTRIBUTE_ENTRY,
		.attributes = { sizeof(header), event_count(&writer->facts) * ATTRIBUTE_ENTRY },
	};
	struct bytes head = { 0 };
	int error;

	bytes_add(&head, &header, sizeof(header));
	add_attributes(&writer->facts, &head);
	header.data.offset = head.size;
	add_first_records(writer, &head);
	header.data.size = head.size - header.data.offset;
	if (head.failed) {
		error = perf_data_writer_no_memory();
	} else {
		memcpy(head.data, &header, sizeof(header));
		error = perf_data_output_start(writer->output, head.data, head.size,
					       header.data.offset);
	}
	free(head.data);
	return error;
}

int perf_data_start(const struct perf_data_writer *writer)
{
	return perf_data_output_is_pipe(writer->output) ? start_pipe(writer) : start_file(writer);
}

int perf_data_start_change(const struct perf_data_writer *writer, size_t event)
{
	struct bytes entry = { 0 };
	int error;

	if (perf_data_output_is_pipe(writer->output))
		return 0;
	add_attribute(&writer->facts, event, &entry);
	error = entry.failed ? perf_data_writer_no_memory()
			     : perf_data_output_patch(writer->output, attribute_offset(event),
						      entry.data, entry.size);
	free(entry.data);
	return error;
}

/* From here on, readers find the new event. */
static int count_event(const struct perf_data_writer *writer)
{
	uint64_t size = event_count(&writer->facts) * ATTRIBUTE_ENTRY;

	return perf_data_output_patch(writer->output,
				      offsetof(struct perf_data_header, attributes) +
					      offsetof(struct perf_data_section, size),
				      &size, sizeof(size));
}

/* Writes what the first records have for each event; in a pipe its attribute too. One record at a
 * time, because they may be large. */
static int write_event_records(const struct perf_data_writer *writer, size_t event)
{
	const struct perf_data_facts *facts = &writer->facts;
	struct bytes record = { 0 };
	int error = 0;

	if (perf_data_output_is_pipe(writer->output)) {
		add_pipe_attribute(facts, event, &record);
		error = record.failed
				? 0
				: perf_data_output_record(writer->output, record.data, record.size);
	}
	record.size = 0;
	perf_data_feature_record(facts, FEATURE_EVENT_DESC, &record);
	if (!error && !record.failed && record.size)
		error = perf_data_output_record(writer->output, record.data, record.size);
	record.size = 0;
	if (writer->perspective == PERSPECTIVE_HOST)
		add_id_index(first_id_of(facts, event), facts->ids, writer->vmm_pid, &record);
	if (!error && !record.failed && record.size)
		error = perf_data_output_record(writer->output, record.data, record.size);
	if (!error && record.failed)
		error = perf_data_writer_no_memory();
	free(record.data);
	return error;
}

int perf_data_start_event(const struct perf_data_writer *writer)
{
	size_t event = event_count(&writer->facts) - 1;
	int error = perf_data_start_change(writer, event);

	if (!error && !perf_data_output_is_pipe(writer->output))
		error = count_event(writer);
	return error ? error : write_event_records(writer, event);
}
