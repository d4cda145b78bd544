/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/perf_data/perf_data_input.h"
#include "vmm/perf_data/perf_data_records.h"

/* Larger sections are refused unread, and so are those after this sum, as sections may overlap. */
#define SECTION_MAX  (64u << 20)
#define SECTIONS_MAX (256u << 20)

struct perf_data_reader {
	char *path;
	struct perf_data_input input;
	struct perf_data_section data;
	struct perf_data_records records;
	struct perf_data_unpack unpack;
	uint8_t *build_ids; /* the table as in the file; owned */
	size_t build_ids_size;
	uint64_t sections; /* sum of the sizes of the sections read */
	uint64_t position; /* position of the current record, for messages */
	uint64_t *aligned; /* buffer for one record */
};

static int broken(const struct perf_data_reader *reader, const char *what)
{
	return error_set(-EINVAL, "%s is not a valid perf.data file: %s", reader->path, what);
}

/* Nothing of the file can be read. A wrong offset looks the same. */
static int cut_off(const struct perf_data_reader *reader)
{
	return error_set(
		-EINVAL,
		"%s is cut off, or broken: its %llu bytes end before its description does, so "
		"no sample can be shown",
		reader->path, (unsigned long long)reader->input.size);
}

/* Reads a section of the file; the caller frees *CONTENT. */
static int load_section(struct perf_data_reader *reader, struct perf_data_section section,
			uint8_t **content)
{
	if (section.size > SECTION_MAX || section.size > SECTIONS_MAX - reader->sections)
		return broken(reader, "a section is too large");
	reader->sections += section.size;
	*content = malloc(section.size ? section.size : 1);
	if (!*content) {
		return error_set(-ENOMEM, "no memory to read %s", reader->path);
	}
	if (perf_data_input_at(&reader->input, section.offset, *content, section.size))
		return 0;
	free(*content);
	return cut_off(reader);
}

static int read_attribute(struct perf_data_reader *reader, struct span attribute)
{
	uint64_t ids_offset = attribute.size - sizeof(struct perf_data_section);
	struct perf_data_section ids;
	uint8_t *content;
	int event, error;

	if (!span_copy(attribute, ids_offset, &ids, sizeof(ids)))
		return broken(reader, "its event attribute is too small");
	attribute.size = ids_offset;
	event = perf_data_layout_add_event(&reader->records.layout, attribute);
	if (event < 0)
		return event;
	error = load_section(reader, ids, &content);
	if (error)
		return error;
	error = perf_data_layout_add_ids(&reader->records.layout, (uint32_t)event,
					 span_of(content, ids.size));
	free(content);
	return error;
}

static int read_attributes(struct perf_data_reader *reader, const struct perf_data_header *header)
{
	uint64_t size = header->attribute_size;
	uint8_t *content;
	int error;

	if (size < PERF_ATTR_SIZE_VER0 + sizeof(struct perf_data_section) ||
	    header->attributes.size < size)
		return broken(reader, "it has no event attributes");
	error = load_section(reader, header->attributes, &content);
	if (error)
		return error;
	for (uint64_t offset = 0; !error && offset + size <= header->attributes.size;
	     offset += size)
		error = read_attribute(reader, span_of(content + offset, size));
	free(content);
	return error;
}

/* Features are optional: unreadable ones are skipped. They are last: if one is not in the file, the
 * file was cut off. */
static void read_feature(struct perf_data_reader *reader, enum perf_data_feature feature,
			 struct perf_data_section section)
{
	uint8_t *content;

	if (load_section(reader, section, &content)) {
		reader->records.summary.cut_off |=
			section.offset > reader->input.size ||
			section.size > reader->input.size - section.offset;
		return;
	}
	if (feature == FEATURE_BUILD_ID && !reader->build_ids) {
		reader->build_ids = content;
		reader->build_ids_size = section.size;
		return;
	}
	perf_data_records_feature(&reader->records, feature, span_of(content, section.size));
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
			reader->records.summary.cut_off = true;
			return;
		}
		read_feature(reader, feature, section);
		table += sizeof(section);
	}
}

/* perf record writes the size of the data when it ends, kvmscope as it grows; both write features
 * last. */
static int read_file_header(struct perf_data_reader *reader)
{
	struct perf_data_header header;
	int error;

	if (!perf_data_input_at(&reader->input, 0, &header, sizeof(header)))
		return broken(reader, "its header is truncated");
	error = read_attributes(reader, &header);
	if (error)
		return error;
	if (header.data.offset > reader->input.size)
		return cut_off(reader);
	reader->data = header.data;
	if (!header.data.size || header.data.size > reader->input.size - header.data.offset) {
		reader->records.summary.cut_off = true;
		reader->data.size = reader->input.size - header.data.offset;
		if (header.data.size)
			reader->records.summary.missing = header.data.size - reader->data.size;
	} else if (!(header.features[0] | header.features[1] | header.features[2] |
		     header.features[3])) {
		reader->records.summary.cut_off = true;
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
		return broken(reader, "it is truncated");
	memcpy(&header, bytes.data, sizeof(header));
	if (header.magic == PERF_DATA_MAGIC_SWAPPED)
		return error_set(
			-ENOTSUP,
			"%s has the other byte order; read it on a machine like the one that recorded it",
			reader->path);
	if (header.magic != PERF_DATA_MAGIC)
		return broken(reader, "it does not start with PERFILE2");
	if (header.size == sizeof(header)) {
		reader->records.pipe = true;
		reader->data =
			(struct perf_data_section){ sizeof(header), UINT64_MAX - sizeof(header) };
		return perf_data_input_skip(&reader->input, sizeof(header)) ? 0 : -EINVAL;
	}
	if (!reader->input.seekable)
		return broken(reader,
			      "its header is not for pipes; give the file instead of a pipe");
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
	reader->records.summary.events = (unsigned int)reader->records.layout.event_count;
	if (!error && reader->records.layout.event_count)
		perf_data_records_first_event(&reader->records);
	if (error)
		perf_data_reader_close(reader);
	else
		*result = reader;
	return error;
}

/* Records of hostile files may be unaligned; callbacks get them aligned to 8 bytes. */
static struct span align(struct perf_data_reader *reader, struct span record)
{
	if (!((uintptr_t)record.data % sizeof(uint64_t)))
		return record;
	memcpy(reader->aligned, record.data, record.size);
	return span_of(reader->aligned, record.size);
}

static int deliver_compressed(struct perf_data_reader *reader,
			      const struct perf_data_events *events, struct span record)
{
	struct span inner;
	int error;

	reader->records.summary.compressed = true;
	error = perf_data_unpack_feed(&reader->unpack,
				      span_of(record.data + sizeof(struct perf_event_header),
					      record.size - sizeof(struct perf_event_header)));
	while (!error && perf_data_unpack_next(&reader->unpack, &inner, &error))
		error = perf_data_records_deliver(&reader->records, events, align(reader, inner));
	if (error == -EINVAL && !reader->unpack.good)
		return error_set(-EINVAL, "%s is broken: the compressed record at byte %llu: %s",
				 reader->path, (unsigned long long)reader->position,
				 error_message());
	return error;
}

/* Some records are followed by data that their size does not include. */
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

/* 1: a record was read; 0: end of the data. */
static int read_record(struct perf_data_reader *reader, const struct perf_data_events *events)
{
	struct perf_event_header header;
	struct span record, copy;
	int error;

	reader->position = reader->input.position;
	if (!perf_data_input_peek(&reader->input, sizeof(header), &record)) {
		reader->records.summary.cut_off |= !perf_data_input_at_end(&reader->input);
		return 0;
	}
	memcpy(&header, record.data, sizeof(header));
	if (header.size < sizeof(header)) {
		if (reader->records.summary.cut_off)
			return 0;
		return error_set(-EINVAL, "%s is broken: the record at byte %llu has size %u",
				 reader->path, (unsigned long long)reader->position, header.size);
	}
	if (!perf_data_input_peek(&reader->input, header.size, &record)) {
		reader->records.summary.cut_off = true;
		return 0;
	}
	copy = align(reader, record);
	error = header.type == PERF_DATA_COMPRESSED
			? deliver_compressed(reader, events, copy)
			: perf_data_records_deliver(&reader->records, events, copy);
	if (error)
		return error < 0 ? error : 0;
	if (!perf_data_input_skip(&reader->input, header.size) ||
	    !skip_payload(reader, record, header.type)) {
		reader->records.summary.cut_off = true;
		return 0;
	}
	return 1;
}

int perf_data_reader_run(struct perf_data_reader *reader, const struct perf_data_events *events)
{
	int result;

	reader->records.summary.skipped = 0;
	/* Their records will be read again. */
	if (reader->records.pipe)
		perf_data_layout_free(&reader->records.layout);
	perf_data_input_range(&reader->input, reader->data.offset,
			      reader->data.offset + reader->data.size);
	perf_data_unpack_start(&reader->unpack);
	result = perf_data_records_build_ids(&reader->records, events,
					     span_of(reader->build_ids, reader->build_ids_size));
	if (result)
		return result;
	do
		result = read_record(reader, events);
	while (result > 0);
	reader->records.summary.events = (unsigned int)reader->records.layout.event_count;
	if (!result && reader->input.error)
		return error_set(reader->input.error, "cannot read %s: %s", reader->path,
				 strerror(-reader->input.error));
	return result;
}

const struct perf_data_summary *perf_data_reader_summary(const struct perf_data_reader *reader)
{
	return &reader->records.summary;
}

const struct perf_data_event *perf_data_reader_event(const struct perf_data_reader *reader,
						     size_t number)
{
	const struct perf_data_layout *layout = &reader->records.layout;

	return number < layout->event_count ? &layout->events[number] : NULL;
}

bool perf_data_reader_count(const struct perf_data_reader *reader, size_t number, int vcpu,
			    struct perf_data_count *count)
{
	const struct perf_data_layout *layout = &reader->records.layout;

	*count = (struct perf_data_count){ 0 };
	for (size_t i = 0; i < layout->ids.capacity; i++) {
		const struct perf_data_id *id = layout->ids.slots[i].item;

		if (!id || id->event != number || (vcpu >= 0 && id->index != (uint32_t)vcpu))
			continue;
		count->value += id->count.value;
		count->enabled += id->count.enabled;
		count->running += id->count.running;
	}
	return count->enabled;
}

void perf_data_reader_close(struct perf_data_reader *reader)
{
	if (!reader)
		return;
	perf_data_unpack_free(&reader->unpack);
	perf_data_layout_free(&reader->records.layout);
	perf_data_input_close(&reader->input);
	free(reader->build_ids);
	free(reader->aligned);
	free(reader->path);
	free(reader);
}
