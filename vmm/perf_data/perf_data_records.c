/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_records.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/perf_data/perf_data_blocks.h"

/* Counts a record of an unknown or broken kind. Returns 0. */
static int skip(struct perf_data_records *records)
{
	records->summary.skipped++;
	return 0;
}

static int deliver_sample(struct perf_data_records *records, const struct perf_data_events *events,
			  struct span record)
{
	struct perf_data_sample sample;

	if (!perf_data_layout_sample(&records->layout, record, &sample))
		return skip(records);
	return events->sample ? events->sample(events->context, &sample) : 0;
}

/* PERF_RECORD_MMAP2 has more fields before the name than PERF_RECORD_MMAP. */
static bool read_mapping(struct span record, uint16_t misc, uint32_t type,
			 struct perf_data_mapping_event *mapping)
{
	uint64_t name = type == PERF_RECORD_MMAP2 ? 72 : 40;
	uint8_t build_id_size;

	if (type == PERF_RECORD_MMAP2 && misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
		if (!span_u8(record, 40, &build_id_size) || build_id_size > 20 ||
		    !span_contains(record, 44, build_id_size))
			return false;
		mapping->build_id = record.data + 44;
		mapping->build_id_size = build_id_size;
	}
	mapping->name = span_string(record, name);
	return mapping->name && span_copy(record, 8, &mapping->pid, 4) &&
	       span_copy(record, 12, &mapping->tid, 4) && span_u64(record, 16, &mapping->start) &&
	       span_u64(record, 24, &mapping->size) && span_u64(record, 32, &mapping->offset);
}

static int deliver_mapping(struct perf_data_records *records, const struct perf_data_events *events,
			   struct span record, uint64_t time,
			   const struct perf_event_header *header)
{
	struct perf_data_mapping_event mapping = {
		.time = time,
		.misc = header->misc & PERF_RECORD_MISC_CPUMODE_MASK,
		.is_data = header->misc & PERF_RECORD_MISC_MMAP_DATA,
	};

	if (!read_mapping(record, header->misc, header->type, &mapping))
		return skip(records);
	return events->mapping ? events->mapping(events->context, &mapping) : 0;
}

/* Generated kernel code; its removal becomes a mapping without a name. */
static int deliver_symbol(struct perf_data_records *records, const struct perf_data_events *events,
			  struct span record, uint64_t time, uint16_t misc)
{
	struct perf_data_mapping_event code = {
		.time = time,
		.misc = misc & PERF_RECORD_MISC_CPUMODE_MASK,
		.pid = -1,
		.name = span_string(record, 24),
	};
	uint32_t length;
	uint16_t flags;

	if (!span_u64(record, 8, &code.start) || !span_u32(record, 16, &length) ||
	    !span_u16(record, 22, &flags) || !code.name)
		return skip(records);
	code.size = length;
	code.is_code = !(flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER);
	if (!code.is_code)
		code.name = "";
	return events->mapping ? events->mapping(events->context, &code) : 0;
}

static int deliver_comm(struct perf_data_records *records, const struct perf_data_events *events,
			struct span record, uint64_t time, uint16_t misc)
{
	const char *comm = span_string(record, 16);
	uint32_t pid, tid;
	int error = 0;

	if (!comm || !span_u32(record, 8, &pid) || !span_u32(record, 12, &tid))
		return skip(records);
	if (misc & PERF_RECORD_MISC_COMM_EXEC && events->exec)
		error = events->exec(events->context, pid, time);
	return !error && events->comm ? events->comm(events->context, pid, tid, comm, time) : error;
}

static int deliver_fork(struct perf_data_records *records, const struct perf_data_events *events,
			struct span record, uint64_t time, uint16_t misc)
{
	uint32_t pid, ppid, tid, ptid;

	if (!span_u32(record, 8, &pid) || !span_u32(record, 12, &ppid) ||
	    !span_u32(record, 16, &tid) || !span_u32(record, 20, &ptid))
		return skip(records);
	return events->fork ? events->fork(events->context, pid, tid, ppid, ptid, time,
					   misc & PERF_RECORD_MISC_FORK_EXEC)
			    : 0;
}

static int deliver_cgroup(struct perf_data_records *records, const struct perf_data_events *events,
			  struct span record)
{
	const char *path = span_string(record, 16);
	uint64_t id;

	if (!path || !span_u64(record, 8, &id))
		return skip(records);
	return events->cgroup ? events->cgroup(events->context, id, path) : 0;
}

/* PERF_RECORD_LOST has an id before the count; PERF_RECORD_LOST_SAMPLES has not. */
static int deliver_lost(struct perf_data_records *records, const struct perf_data_events *events,
			struct span record, uint32_t type)
{
	uint64_t count;

	if (!span_u64(record, type == PERF_RECORD_LOST ? 16 : 8, &count))
		return skip(records);
	return events->lost ? events->lost(events->context, count) : 0;
}

static int deliver_throttled(struct perf_data_records *records,
			     const struct perf_data_events *events, struct span record,
			     uint32_t type)
{
	uint64_t time, id;
	int event = -1;

	if (span_u64(record, 8, &time) && span_u64(record, 16, &id))
		event = perf_data_layout_event(&records->layout, id);
	if (event < 0)
		return skip(records);
	return events->throttled ? events->throttled(events->context, (uint16_t)event,
						     type == PERF_RECORD_THROTTLE, time)
				 : 0;
}

static int deliver_build_id(struct perf_data_records *records,
			    const struct perf_data_events *events, struct span record)
{
	struct perf_data_build_id build_id = { .name = span_string(record, 36),
					       .build_id_size = 20 };
	uint8_t size;

	if (!build_id.name ||
	    !span_u16(record, offsetof(struct perf_event_header, misc), &build_id.misc) ||
	    !span_copy(record, 8, &build_id.pid, sizeof(build_id.pid)) ||
	    !span_u8(record, 32, &size))
		return skip(records);
	build_id.build_id = record.data + 12;
	if (build_id.misc & PERF_DATA_MISC_BUILD_ID_SIZE)
		build_id.build_id_size = size;
	if (!build_id.build_id_size || build_id.build_id_size > 20)
		return skip(records);
	build_id.misc &= PERF_RECORD_MISC_CPUMODE_MASK;
	return events->build_id ? events->build_id(events->context, &build_id) : 0;
}

int perf_data_records_build_ids(struct perf_data_records *records,
				const struct perf_data_events *events, struct span table)
{
	struct span record;
	uint16_t size;
	int error = 0;

	for (uint64_t offset = 0; !error && offset < table.size; offset += size) {
		if (!span_u16(table, offset + offsetof(struct perf_event_header, size), &size) ||
		    size < sizeof(struct perf_event_header) ||
		    !span_part(table, offset, size, &record))
			break;
		error = deliver_build_id(records, events, record);
	}
	return error;
}

static int deliver_kernel_record(struct perf_data_records *records,
				 const struct perf_data_events *events, struct span record,
				 const struct perf_event_header *header)
{
	uint64_t time;

	if (header->type == PERF_RECORD_SAMPLE)
		return deliver_sample(records, events, record);
	if (!perf_data_layout_sample_id(&records->layout, &record, &time))
		return skip(records);
	switch (header->type) {
	case PERF_RECORD_MMAP:
	case PERF_RECORD_MMAP2:
		return deliver_mapping(records, events, record, time, header);
	case PERF_RECORD_KSYMBOL:
		return deliver_symbol(records, events, record, time, header->misc);
	case PERF_RECORD_COMM:
		return deliver_comm(records, events, record, time, header->misc);
	case PERF_RECORD_FORK:
		return deliver_fork(records, events, record, time, header->misc);
	case PERF_RECORD_CGROUP:
		return deliver_cgroup(records, events, record);
	case PERF_RECORD_LOST:
	case PERF_RECORD_LOST_SAMPLES:
		return deliver_lost(records, events, record, header->type);
	case PERF_RECORD_READ:
		perf_data_layout_read(&records->layout, record);
		return 0;
	case PERF_RECORD_THROTTLE:
	case PERF_RECORD_UNTHROTTLE:
		return deliver_throttled(records, events, record, header->type);
	case PERF_RECORD_EXIT:
		return 0; /* not used */
	default:
		return skip(records);
	}
}

/* Reads a string: its padded length, then its bytes. Truncates it to SIZE - 1. */
static bool copy_string(struct span content, uint64_t offset, char *to, size_t size, uint64_t *next)
{
	uint32_t length;
	struct span string;

	if (!span_u32(content, offset, &length) ||
	    !span_part(content, offset + sizeof(length), length, &string))
		return false;
	*next = offset + sizeof(length) + length;
	snprintf(to, size, "%.*s", (int)strnlen((const char *)string.data, string.size),
		 (const char *)string.data);
	return true;
}

static void read_string(struct span content, char *to, size_t size)
{
	uint64_t next;

	copy_string(content, 0, to, size, &next);
}

/* "" if the writer did not know it. */
static void read_fact(struct span content, char *to, size_t size)
{
	read_string(content, to, size);
	if (!strcmp(to, PERF_DATA_UNKNOWN))
		*to = '\0';
}

static void read_command_line(struct perf_data_summary *summary, struct span content)
{
	char line[sizeof(summary->command_line)], argument[sizeof(line)];
	uint64_t next = sizeof(uint32_t);
	uint32_t count;
	size_t used = 0;

	if (!span_u32(content, 0, &count))
		return;
	line[0] = '\0';
	for (uint32_t i = 0; i < count && used < sizeof(line); i++) {
		if (!copy_string(content, next, argument, sizeof(argument), &next))
			break;
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s", i ? " " : "",
					 argument);
	}
	if (strcmp(line, PERF_DATA_UNKNOWN) != 0)
		memcpy(summary->command_line, line, sizeof(line));
}

/* Content: number of events, size of an attribute; then per event: attribute, number of ids, name,
 * ids. */
static void read_event_name(struct perf_data_summary *summary, struct span content)
{
	uint32_t events, attribute_size;
	uint64_t next;

	if (!span_u32(content, 0, &events) || !events || !span_u32(content, 4, &attribute_size))
		return;
	copy_string(content, 8 + (uint64_t)attribute_size + 4, summary->event_name,
		    sizeof(summary->event_name), &next);
}

/* Content: version, clock id, then the two times. */
static void read_clock_data(struct perf_data_summary *summary, struct span content)
{
	uint64_t wall_time, clock_time;

	if (!span_u64(content, 8, &wall_time) || !span_u64(content, 16, &clock_time))
		return;
	summary->wall_time = wall_time;
	summary->clock_time = clock_time;
}

static void read_summary(struct perf_data_summary *summary, enum perf_data_feature feature,
			 struct span content)
{
	uint32_t cpus;

	switch (feature) {
	case FEATURE_HOSTNAME:
		read_fact(content, summary->hostname, sizeof(summary->hostname));
		break;
	case FEATURE_OSRELEASE:
		read_fact(content, summary->release, sizeof(summary->release));
		break;
	case FEATURE_VERSION:
		read_string(content, summary->version, sizeof(summary->version));
		break;
	case FEATURE_ARCH:
		read_string(content, summary->arch, sizeof(summary->arch));
		break;
	case FEATURE_NRCPUS:
		if (span_u32(content, 4, &cpus)) /* online CPUs; the available ones are before it */
			summary->cpus = cpus;
		break;
	case FEATURE_CPUDESC:
		read_fact(content, summary->cpu_description, sizeof(summary->cpu_description));
		break;
	case FEATURE_CMDLINE:
		read_command_line(summary, content);
		break;
	case FEATURE_EVENT_DESC:
		read_event_name(summary, content);
		break;
	case FEATURE_COMPRESSED:
		summary->compressed = true;
		break;
	case FEATURE_CLOCK_DATA:
		read_clock_data(summary, content);
		break;
	default:
		break;
	}
}

void perf_data_event_type_name(const struct perf_data_event *event, char *text, size_t size)
{
	if (event->type == PERF_TYPE_SOFTWARE && event->config == PERF_COUNT_SW_CPU_CLOCK)
		snprintf(text, size, "cpu-clock");
	else if (event->type == PERF_TYPE_HARDWARE && event->config == PERF_COUNT_HW_CPU_CYCLES)
		snprintf(text, size, "cycles");
	else
		snprintf(text, size, "type %u config %#llx", event->type,
			 (unsigned long long)event->config);
}

void perf_data_records_first_event(struct perf_data_records *records)
{
	struct perf_data_summary *summary = &records->summary;
	const struct perf_data_event *event = records->layout.events;

	summary->frequency =
		event->frequency > UINT32_MAX ? UINT32_MAX : (unsigned int)event->frequency;
	if (!*summary->event_name)
		perf_data_event_type_name(event, summary->event_name, sizeof(summary->event_name));
}

/* In pipe mode the attribute comes as a record, followed by its ids. */
static int read_attribute_record(struct perf_data_records *records, struct span record)
{
	uint32_t size;
	struct span attribute, ids;
	int event;

	if (!records->pipe)
		return 0;
	if (!span_u32(record, 8 + offsetof(struct perf_event_attr, size), &size) ||
	    size > record.size - 8 || !span_part(record, 8, size, &attribute) ||
	    !span_part(record, 8 + size, record.size - 8 - size, &ids))
		return error_set(-EINVAL, "an event attribute in the stream is cut off");
	event = perf_data_layout_add_event(&records->layout, attribute);
	if (event < 0)
		return event;
	if (!event)
		perf_data_records_first_event(records);
	return perf_data_layout_add_ids(&records->layout, (uint32_t)event, ids);
}

void perf_data_records_feature(struct perf_data_records *records, enum perf_data_feature feature,
			       struct span content)
{
	read_summary(&records->summary, feature, content);
	if (feature == FEATURE_EVENT_DESC)
		perf_data_layout_names(&records->layout, content);
}

static void read_feature_record(struct perf_data_records *records, struct span record)
{
	uint64_t feature;
	struct span content;

	if (span_u64(record, 8, &feature) && span_part(record, 16, record.size - 16, &content) &&
	    feature < FEATURE_COUNT)
		perf_data_records_feature(records, (enum perf_data_feature)feature, content);
}

/* Reads our blocks; the last ones apply to the whole file. */
static void read_round(struct perf_data_records *records, struct span record)
{
	uint64_t offset = sizeof(struct perf_event_header), tag, size;
	struct span content;

	for (; span_u64(record, offset, &tag) && span_u64(record, offset + 8, &size) &&
	       span_part(record, offset + 16, size, &content);
	     offset += 16 + size) {
		if (tag == PERF_DATA_BLOCK_LOSSES)
			perf_data_losses_parse(&records->summary.losses, content);
		else if (tag == PERF_DATA_BLOCK_TIMES)
			perf_data_times_parse(&records->summary.times, content);
		else if (tag == PERF_DATA_BLOCK_FLIGHT)
			perf_data_flight_parse(&records->summary.flight, content);
	}
}

int perf_data_records_deliver(struct perf_data_records *records,
			      const struct perf_data_events *events, struct span record)
{
	struct perf_event_header header;
	int error = events->check ? events->check(events->context) : 0;

	if (error)
		return error;
	memcpy(&header, record.data, sizeof(header));
	if (header.type < PERF_DATA_FIRST_OWN_TYPE)
		return deliver_kernel_record(records, events, record, &header);
	switch (header.type) {
	case PERF_DATA_HEADER_ATTR:
		return read_attribute_record(records, record);
	case PERF_DATA_HEADER_FEATURE:
		read_feature_record(records, record);
		return 0;
	case PERF_DATA_FINISHED_ROUND:
		read_round(records, record);
		return 0;
	case PERF_DATA_HEADER_BUILD_ID:
		return deliver_build_id(records, events, record);
	case PERF_DATA_ID_INDEX:
		records->summary.skipped += !perf_data_layout_id_index(&records->layout, record);
		return 0;
	default:
		/* perf's other records are not used; types beyond them are unknown. */
		records->summary.skipped +=
			header.type >= PERF_DATA_TYPE_END || header.type == PERF_DATA_COMPRESSED;
		return 0;
	}
}
