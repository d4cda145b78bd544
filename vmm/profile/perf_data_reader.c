// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/perf_data_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/profile/perf_data_input.h"
#include "vmm/profile/perf_data_layout.h"
#include "vmm/profile/perf_data_summary.h"
#include "vmm/profile/perf_data_unpack.h"

/* Sections and attributes larger than this are refused unread. */
#define SECTION_MAX (64u << 20)

struct perf_data_reader {
	char *path;
	struct perf_data_input input;
	bool pipe; /* the form of the file, whatever it is read from */
	struct perf_data_section data;
	struct perf_data_layout layout;
	struct perf_data_summary summary;
	struct perf_data_unpack unpack;
	uint8_t *build_ids; /* the table, as it is in the file; owned */
	size_t build_ids_size;
	uint64_t place;    /* in the file, of the record being read; for messages */
	uint64_t *aligned; /* room for one record */
};

static int broken(const struct perf_data_reader *reader, const char *what)
{
	error_set(-EINVAL, "%s is no perf.data file that can be read: %s", reader->path, what);
	return -EINVAL;
}

/* Reads a section of the file into memory of the caller. */
static int load_section(struct perf_data_reader *reader, struct perf_data_section section, uint8_t **content)
{
	if (section.size > SECTION_MAX)
		return broken(reader, "a section is too large");
	*content = malloc(section.size ? section.size : 1);
	if (!*content) {
		error_set(-ENOMEM, "no memory to read %s", reader->path);
		return -ENOMEM;
	}
	if (perf_data_input_at(&reader->input, section.offset, *content, section.size))
		return 0;
	free(*content);
	return broken(reader, "a section lies outside of the file");
}

static int read_attribute(struct perf_data_reader *reader, struct span attribute)
{
	uint64_t ids_place = attribute.size - sizeof(struct perf_data_section);
	struct perf_data_section ids;
	uint8_t *content;
	int event, error;

	if (!span_copy(attribute, ids_place, &ids, sizeof(ids)))
		return broken(reader, "its event attribute is too small");
	attribute.size = ids_place;
	event = perf_data_layout_add_event(&reader->layout, attribute);
	if (event < 0)
		return event;
	error = load_section(reader, ids, &content);
	if (error)
		return error;
	error = perf_data_layout_add_ids(&reader->layout, (uint32_t)event, span_of(content, ids.size));
	free(content);
	return error;
}

static int read_attributes(struct perf_data_reader *reader, const struct perf_data_header *header)
{
	uint64_t size = header->attribute_size;
	uint8_t *content;
	int error;

	if (size < PERF_ATTR_SIZE_VER0 + sizeof(struct perf_data_section) || header->attributes.size < size)
		return broken(reader, "it has no event attributes");
	error = load_section(reader, header->attributes, &content);
	if (error)
		return error;
	for (uint64_t offset = 0; !error && offset + size <= header->attributes.size; offset += size)
		error = read_attribute(reader, span_of(content + offset, size));
	free(content);
	return error;
}

/* Features are extras: what can't be read of them is left out. */
static void read_feature(struct perf_data_reader *reader, enum perf_data_feature feature,
			 struct perf_data_section section)
{
	uint8_t *content;

	if (load_section(reader, section, &content))
		return;
	if (feature == FEATURE_BUILD_ID && !reader->build_ids) {
		reader->build_ids = content;
		reader->build_ids_size = section.size;
		return;
	}
	perf_data_summary_feature(&reader->summary, feature, span_of(content, section.size));
	free(content);
}

static void read_features(struct perf_data_reader *reader, const struct perf_data_header *header)
{
	uint64_t table = header->data.offset + header->data.size;

	for (unsigned int feature = 0; feature < FEATURE_COUNT; feature++) {
		struct perf_data_section section;

		if (!(header->features[feature / 64] >> feature % 64 & 1))
			continue;
		if (!perf_data_input_at(&reader->input, table, &section, sizeof(section))) {
			reader->summary.cut_off = true;
			return;
		}
		read_feature(reader, feature, section);
		table += sizeof(section);
	}
}

/* perf record sets the size of the data when it ends, we as we go; features come last in both. */
static int read_file_header(struct perf_data_reader *reader)
{
	struct perf_data_header header;
	int error;

	if (!perf_data_input_at(&reader->input, 0, &header, sizeof(header)))
		return broken(reader, "its header is cut off");
	error = read_attributes(reader, &header);
	if (error)
		return error;
	if (header.data.offset > reader->input.size)
		return broken(reader, "its data lie outside of the file");
	reader->data = header.data;
	if (!header.data.size || header.data.size > reader->input.size - header.data.offset) {
		reader->summary.cut_off = true;
		reader->data.size = reader->input.size - header.data.offset;
	} else if (!(header.features[0] | header.features[1] | header.features[2] | header.features[3])) {
		reader->summary.cut_off = true;
	} else {
		read_features(reader, &header);
	}
	return 0;
}

static int read_header(struct perf_data_reader *reader)
{
	struct perf_data_pipe_header header;
	struct span bytes;

	if (!perf_data_input_peek(&reader->input, sizeof(header), &bytes))
		return broken(reader, "it is too short");
	memcpy(&header, bytes.data, sizeof(header));
	if (header.magic == PERF_DATA_MAGIC_SWAPPED)
		return error_set(-ENOTSUP,
				 "%s was recorded on a machine of the other byte order; read it there",
				 reader->path);
	if (header.magic != PERF_DATA_MAGIC)
		return broken(reader, "it does not start with PERFILE2");
	if (header.size == sizeof(header)) {
		reader->pipe = true;
		reader->data = (struct perf_data_section){ sizeof(header), UINT64_MAX - sizeof(header) };
		return perf_data_input_skip(&reader->input, sizeof(header)) ? 0 : -EINVAL;
	}
	if (!reader->input.seekable)
		return broken(reader, "its header is not that of a pipe; name the file instead of a pipe");
	return read_file_header(reader);
}

int perf_data_reader_open(struct perf_data_reader **result, const char *path)
{
	struct perf_data_reader *reader = calloc(1, sizeof(*reader));
	int error;

	if (!reader)
		return error_set(-ENOMEM, "no memory to read %s", path);
	reader->input.fd = -1;
	reader->path = strdup(path);
	reader->aligned = malloc(PERF_DATA_RECORD_MAX + 1);
	if (reader->path && reader->aligned)
		error = perf_data_input_open(&reader->input, path);
	else
		error = error_set(-ENOMEM, "no memory to read %s", path);
	if (!error)
		error = read_header(reader);
	reader->summary.events = (unsigned int)reader->layout.event_count;
	if (!error && reader->layout.event_count)
		perf_data_summary_event(&reader->summary, reader->layout.events);
	if (error)
		perf_data_reader_close(reader);
	else
		*result = reader;
	return error;
}

static int deliver_sample(struct perf_data_reader *reader, const struct perf_data_events *events,
			  struct span record)
{
	struct perf_data_sample sample;

	if (!perf_data_layout_sample(&reader->layout, record, &sample)) {
		reader->summary.skipped++;
		return 0;
	}
	return events->sample ? events->sample(events->context, &sample) : 0;
}

/* PERF_RECORD_MMAP2 puts more between the offset and the name than PERF_RECORD_MMAP. */
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

static int deliver_mapping(struct perf_data_reader *reader, const struct perf_data_events *events,
			   struct span record, uint64_t time, const struct perf_event_header *header)
{
	struct perf_data_mapping_event mapping = {
		.time = time,
		.misc = header->misc & PERF_RECORD_MISC_CPUMODE_MASK,
	};

	if (!read_mapping(record, header->misc, header->type, &mapping)) {
		reader->summary.skipped++;
		return 0;
	}
	return events->mapping ? events->mapping(events->context, &mapping) : 0;
}

static int deliver_comm(struct perf_data_reader *reader, const struct perf_data_events *events,
			struct span record, uint64_t time)
{
	const char *comm = span_string(record, 16);
	uint32_t pid, tid;

	if (!comm || !span_u32(record, 8, &pid) || !span_u32(record, 12, &tid)) {
		reader->summary.skipped++;
		return 0;
	}
	return events->comm ? events->comm(events->context, pid, tid, comm, time) : 0;
}

static int deliver_fork(struct perf_data_reader *reader, const struct perf_data_events *events,
			struct span record, uint64_t time)
{
	uint32_t pid, ppid, tid, ptid;

	if (!span_u32(record, 8, &pid) || !span_u32(record, 12, &ppid) || !span_u32(record, 16, &tid) ||
	    !span_u32(record, 20, &ptid)) {
		reader->summary.skipped++;
		return 0;
	}
	return events->fork ? events->fork(events->context, pid, tid, ppid, ptid, time) : 0;
}

/* Two kinds tell of losses: one with an id before the count, and the one of PERF_RECORD_LOST_SAMPLES. */
static int deliver_lost(struct perf_data_reader *reader, const struct perf_data_events *events,
			struct span record, uint32_t type)
{
	uint64_t count;

	if (!span_u64(record, type == PERF_RECORD_LOST ? 16 : 8, &count)) {
		reader->summary.skipped++;
		return 0;
	}
	return events->lost ? events->lost(events->context, count) : 0;
}

static int deliver_build_id(struct perf_data_reader *reader, const struct perf_data_events *events,
			    struct span record)
{
	struct perf_data_build_id build_id = { .name = span_string(record, 36), .build_id_size = 20 };
	uint8_t size;

	if (!build_id.name || !span_u16(record, offsetof(struct perf_event_header, misc), &build_id.misc) ||
	    !span_copy(record, 8, &build_id.pid, sizeof(build_id.pid)) || !span_u8(record, 32, &size))
		goto skip;
	build_id.build_id = record.data + 12;
	if (build_id.misc & PERF_DATA_MISC_BUILD_ID_SIZE)
		build_id.build_id_size = size;
	if (!build_id.build_id_size || build_id.build_id_size > 20)
		goto skip;
	build_id.misc &= PERF_RECORD_MISC_CPUMODE_MASK;
	return events->build_id ? events->build_id(events->context, &build_id) : 0;
skip:
	reader->summary.skipped++;
	return 0;
}

static int deliver_build_ids(struct perf_data_reader *reader, const struct perf_data_events *events)
{
	struct span table = span_of(reader->build_ids, reader->build_ids_size), record;
	uint16_t size;
	int error = 0;

	for (uint64_t place = 0; !error && place < table.size; place += size) {
		if (!span_u16(table, place + offsetof(struct perf_event_header, size), &size) ||
		    size < sizeof(struct perf_event_header) || !span_part(table, place, size, &record))
			break;
		error = deliver_build_id(reader, events, record);
	}
	return error;
}

static int deliver_kernel_record(struct perf_data_reader *reader, const struct perf_data_events *events,
				 struct span record, const struct perf_event_header *header)
{
	uint64_t time;

	if (header->type == PERF_RECORD_SAMPLE)
		return deliver_sample(reader, events, record);
	if (!perf_data_layout_sample_id(&reader->layout, &record, &time)) {
		reader->summary.skipped++;
		return 0;
	}
	switch (header->type) {
	case PERF_RECORD_MMAP:
	case PERF_RECORD_MMAP2:
		return deliver_mapping(reader, events, record, time, header);
	case PERF_RECORD_COMM:
		return deliver_comm(reader, events, record, time);
	case PERF_RECORD_FORK:
		return deliver_fork(reader, events, record, time);
	case PERF_RECORD_LOST:
	case PERF_RECORD_LOST_SAMPLES:
		return deliver_lost(reader, events, record, header->type);
	case PERF_RECORD_EXIT:
	case PERF_RECORD_THROTTLE:
	case PERF_RECORD_UNTHROTTLE:
		return 0; /* nothing in them for us */
	default:
		reader->summary.skipped++;
		return 0;
	}
}

/* In pipe mode the attribute comes as a record, ids behind it. */
static int take_attribute_record(struct perf_data_reader *reader, struct span record)
{
	uint32_t size;
	struct span attribute, ids;
	int event;

	if (!reader->pipe)
		return 0;
	if (!span_u32(record, 8 + offsetof(struct perf_event_attr, size), &size) || size > record.size - 8 ||
	    !span_part(record, 8, size, &attribute) ||
	    !span_part(record, 8 + size, record.size - 8 - size, &ids))
		return broken(reader, "an event attribute is cut off");
	event = perf_data_layout_add_event(&reader->layout, attribute);
	if (event < 0)
		return event;
	if (!event)
		perf_data_summary_event(&reader->summary, reader->layout.events);
	return perf_data_layout_add_ids(&reader->layout, (uint32_t)event, ids);
}

static void take_feature_record(struct perf_data_reader *reader, struct span record)
{
	uint64_t feature;
	struct span content;

	if (span_u64(record, 8, &feature) && span_part(record, 16, record.size - 16, &content) &&
	    feature < FEATURE_COUNT)
		perf_data_summary_feature(&reader->summary, (enum perf_data_feature)feature, content);
}

static int deliver(struct perf_data_reader *reader, const struct perf_data_events *events, struct span record)
{
	struct perf_event_header header;

	memcpy(&header, record.data, sizeof(header));
	if (header.type < PERF_DATA_FIRST_OWN_TYPE)
		return deliver_kernel_record(reader, events, record, &header);
	switch (header.type) {
	case PERF_DATA_HEADER_ATTR:
		return take_attribute_record(reader, record);
	case PERF_DATA_HEADER_FEATURE:
		take_feature_record(reader, record);
		return 0;
	case PERF_DATA_HEADER_BUILD_ID:
		return deliver_build_id(reader, events, record);
	case PERF_DATA_ID_INDEX:
		reader->summary.skipped += !perf_data_layout_id_index(&reader->layout, record);
		return 0;
	default:
		/* The others of perf say nothing that we use; those behind them are unknown. */
		reader->summary.skipped +=
			header.type >= PERF_DATA_TYPE_END || header.type == PERF_DATA_COMPRESSED;
		return 0;
	}
}

/* Records are handed on at 8-byte alignment, which hostile ones may lack. */
static struct span align(struct perf_data_reader *reader, struct span record)
{
	if (!((uintptr_t)record.data % sizeof(uint64_t)))
		return record;
	memcpy(reader->aligned, record.data, record.size);
	return span_of(reader->aligned, record.size);
}

static int deliver_compressed(struct perf_data_reader *reader, const struct perf_data_events *events,
			      struct span record)
{
	struct span inner;
	int error;

	reader->summary.compressed = true;
	error = perf_data_unpack_feed(&reader->unpack,
				      span_of(record.data + sizeof(struct perf_event_header),
					      record.size - sizeof(struct perf_event_header)));
	while (!error && perf_data_unpack_next(&reader->unpack, &inner, &error))
		error = deliver(reader, events, align(reader, inner));
	if (error == -EINVAL && !reader->unpack.good)
		return error_set(-EINVAL, "%s is broken: the compressed record at byte %llu: %s",
				 reader->path, (unsigned long long)reader->place, error_message());
	return error;
}

/* Some records are followed by bytes that their size does not count. */
static bool skip_payload(struct perf_data_reader *reader, struct span record, uint32_t type)
{
	uint64_t size64;
	uint32_t size32;

	if (type == PERF_DATA_AUXTRACE && span_u64(record, 8, &size64))
		return perf_data_input_skip(&reader->input, size64);
	if (type == PERF_DATA_HEADER_TRACING_DATA && span_u32(record, 8, &size32))
		return perf_data_input_skip(&reader->input, ((uint64_t)size32 + 7) / 8 * 8);
	return true;
}

/* 1: a record was read, 0: the end. */
static int read_record(struct perf_data_reader *reader, const struct perf_data_events *events)
{
	struct perf_event_header header;
	struct span record, copy;
	int error;

	reader->place = reader->input.position;
	if (!perf_data_input_peek(&reader->input, sizeof(header), &record)) {
		reader->summary.cut_off |= !perf_data_input_at_end(&reader->input);
		return 0;
	}
	memcpy(&header, record.data, sizeof(header));
	if (header.size < sizeof(header)) {
		if (reader->summary.cut_off)
			return 0;
		return error_set(-EINVAL, "%s is broken: the record at byte %llu has size %u", reader->path,
				 (unsigned long long)reader->place, header.size);
	}
	if (!perf_data_input_peek(&reader->input, header.size, &record)) {
		reader->summary.cut_off = true;
		return 0;
	}
	copy = align(reader, record);
	error = header.type == PERF_DATA_COMPRESSED ? deliver_compressed(reader, events, copy)
						    : deliver(reader, events, copy);
	if (error)
		return error < 0 ? error : 0;
	if (!perf_data_input_skip(&reader->input, header.size) ||
	    !skip_payload(reader, record, header.type)) {
		reader->summary.cut_off = true;
		return 0;
	}
	return 1;
}

int perf_data_reader_run(struct perf_data_reader *reader, const struct perf_data_events *events)
{
	int result;

	reader->summary.skipped = 0;
	perf_data_input_range(&reader->input, reader->data.offset, reader->data.offset + reader->data.size);
	result = perf_data_unpack_start(&reader->unpack);
	if (!result)
		result = deliver_build_ids(reader, events);
	if (result)
		return result;
	do
		result = read_record(reader, events);
	while (result > 0);
	reader->summary.events = (unsigned int)reader->layout.event_count;
	if (!result && reader->input.error)
		return error_set(reader->input.error, "can't read %s: %s", reader->path,
				 strerror(-reader->input.error));
	return result;
}

const struct perf_data_summary *perf_data_reader_summary(const struct perf_data_reader *reader)
{
	return &reader->summary;
}

void perf_data_reader_close(struct perf_data_reader *reader)
{
	if (!reader)
		return;
	perf_data_unpack_free(&reader->unpack);
	perf_data_layout_free(&reader->layout);
	perf_data_input_close(&reader->input);
	free(reader->build_ids);
	free(reader->aligned);
	free(reader->path);
	free(reader);
}
