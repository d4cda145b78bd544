// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/perf_data_start.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/error.h"

/* Readers that know less than the file's attribute size refuse the file; this much is in Linux 4.1. */
#define ATTRIBUTE_SIZE PERF_ATTR_SIZE_VER5

static int no_memory(void)
{
	return error_set(-ENOMEM, "no memory to write perf.data");
}

/*
 * The host's perspective has no CPU: which one of the host ran the vCPU is
 * not known, and the vCPU itself stands in the index of ids.
 */
void perf_data_describe_event(struct perf_event_attr *attribute, const struct perf_data_options *options)
{
	*attribute = (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.size = ATTRIBUTE_SIZE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_freq = options->frequency,
		.freq = 1,
		.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
			       PERF_SAMPLE_PERIOD,
		.read_format = PERF_FORMAT_ID,
		.sample_id_all = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.build_id = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
		.exclude_host = options->perspective == PERSPECTIVE_HOST,
	};
	if (options->perspective == PERSPECTIVE_GUEST)
		attribute->sample_type |= PERF_SAMPLE_CPU;
	if (options->callchains)
		attribute->sample_type |= PERF_SAMPLE_CALLCHAIN;
}

/* The value before and after comes as raw data: see struct perf_data_hit_values. */
void perf_data_describe_watch(struct perf_event_attr *attribute, const struct perf_event_attr *clock,
			      const struct perf_data_watch *watch)
{
	*attribute = *clock;
	attribute->type = PERF_TYPE_BREAKPOINT;
	attribute->config = 0;
	attribute->freq = 0;
	attribute->sample_period = watch->period;
	attribute->bp_type = watch->type;
	attribute->bp_addr = watch->address;
	attribute->bp_len = watch->length;
	attribute->sample_type |= PERF_SAMPLE_ADDR | PERF_SAMPLE_RAW;
	/* One event of a recording asks for these. */
	attribute->mmap = attribute->mmap2 = attribute->comm = 0;
}

/* Tells readers which id is which vCPU of which machine (perf since 5.19); FIRST_ID is that of vCPU 0. */
static void add_id_index(uint64_t first_id, uint64_t count, pid_t vmm_pid, struct bytes *to)
{
	struct perf_event_header header = { .type = PERF_DATA_ID_INDEX };

	header.size =
		(uint16_t)(sizeof(header) + sizeof(count) +
			   count * (sizeof(struct perf_data_id_entry) + sizeof(struct perf_data_id_guest)));
	bytes_add(to, &header, sizeof(header));
	bytes_add_u64(to, count);
	for (uint64_t i = 0; i < count; i++)
		bytes_add(to, &(struct perf_data_id_entry){ first_id + i, i, UINT64_MAX, UINT64_MAX },
			  sizeof(struct perf_data_id_entry));
	for (uint64_t i = 0; i < count; i++)
		bytes_add(to, &(struct perf_data_id_guest){ (uint64_t)vmm_pid, i },
			  sizeof(struct perf_data_id_guest));
}

/* The events: 0 is the clock, then come the others. */
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

static void add_first_records(const struct perf_data_start *start, struct bytes *to)
{
	const struct perf_data_facts *facts = start->facts;

	perf_data_feature_records(facts, to);
	for (size_t event = 0; event < event_count(facts) && start->perspective == PERSPECTIVE_HOST; event++)
		add_id_index(first_id_of(facts, event), facts->ids, start->vmm_pid, to);
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

static int start_pipe(const struct perf_data_start *start)
{
	struct perf_data_pipe_header pipe_header = { PERF_DATA_MAGIC, sizeof(pipe_header) };
	struct bytes head = { 0 };
	int error;

	bytes_add(&head, &pipe_header, sizeof(pipe_header));
	for (size_t event = 0; event < event_count(start->facts); event++)
		add_pipe_attribute(start->facts, event, &head);
	add_first_records(start, &head);
	error = head.failed ? no_memory() : perf_data_output_start(start->output, head.data, head.size, 0);
	free(head.data);
	return error;
}

/* An attribute in the file's section of them, and where its ids are. */
#define ATTRIBUTE_ENTRY (ATTRIBUTE_SIZE + sizeof(struct perf_data_section))

/* The order in the file: header, attributes, ids of each, data. */
static void add_attributes(const struct perf_data_facts *facts, struct bytes *to)
{
	struct perf_data_section ids = {
		sizeof(struct perf_data_header) + event_count(facts) * ATTRIBUTE_ENTRY,
		facts->ids * sizeof(uint64_t),
	};

	for (size_t event = 0; event < event_count(facts); event++, ids.offset += ids.size) {
		bytes_add(to, attribute_of(facts, event), ATTRIBUTE_SIZE);
		bytes_add(to, &ids, sizeof(ids));
	}
	for (size_t event = 0; event < event_count(facts); event++)
		add_ids(facts, event, to);
}

static int start_file(const struct perf_data_start *start)
{
	struct perf_data_header header = {
		.magic = PERF_DATA_MAGIC,
		.size = sizeof(header),
		.attribute_size = ATTRIBUTE_ENTRY,
		.attributes = { sizeof(header), event_count(start->facts) * ATTRIBUTE_ENTRY },
	};
	struct bytes head = { 0 };
	int error;

	bytes_add(&head, &header, sizeof(header));
	add_attributes(start->facts, &head);
	header.data.offset = head.size;
	add_first_records(start, &head);
	header.data.size = head.size - header.data.offset;
	if (head.failed) {
		error = no_memory();
	} else {
		memcpy(head.data, &header, sizeof(header));
		error = perf_data_output_start(start->output, head.data, head.size, header.data.offset);
	}
	free(head.data);
	return error;
}

int perf_data_start(const struct perf_data_start *start)
{
	return perf_data_output_is_pipe(start->output) ? start_pipe(start) : start_file(start);
}
