// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/pprof.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "shared/error.h"
#include "shared/sample.h"
#include "vmm/profile/pprof.pb-c.h"

#define NS_PER_S   1000000000
#define GZIP       (MAX_WBITS + 16) /* deflateInit2(): with gzip's header */
#define VALUES_MAX 2                /* of an event */
#define LABELS_MAX 4

/* What has a number already: a text by its content, a frame or an image by its address. */
struct numbered {
	const void *key;
	int64_t number;
};

/*
 * Parts of a message that follow each other are one message, their repeated fields one
 * behind the other: so it is written in parts, and nothing is held in memory but what has a number.
 */
struct writer {
	FILE *to;
	struct pprof_options options;
	z_stream stream;
	void *texts, *images, *frames; /* trees of struct numbered */
	int64_t text_count, image_count, frame_count;
	int error; /* the first; the rest is not written */
};

static int by_text(const void *left, const void *right)
{
	return strcmp(((const struct numbered *)left)->key, ((const struct numbered *)right)->key);
}

static int by_address(const void *left, const void *right)
{
	const char *a = ((const struct numbered *)left)->key, *b = ((const struct numbered *)right)->key;

	return (a > b) - (a < b);
}

static void fail(struct writer *writer, int error)
{
	if (writer->error)
		return;
	writer->error = error == -ENOMEM ? error_set(error, "no memory for the profile")
					 : error_set(error, "cannot write the profile: %s", strerror(-error));
}

static void compress_bytes(struct writer *writer, uint8_t *bytes, size_t size, int flush)
{
	uint8_t packed[16384];

	writer->stream.next_in = bytes;
	writer->stream.avail_in = (uInt)size;
	do {
		writer->stream.next_out = packed;
		writer->stream.avail_out = sizeof(packed);
		deflate(&writer->stream, flush);
		if (fwrite(packed, 1, sizeof(packed) - writer->stream.avail_out, writer->to) !=
		    sizeof(packed) - writer->stream.avail_out)
			fail(writer, errno ? -errno : -EIO);
	} while (!writer->stream.avail_out && !writer->error);
}

static void put(struct writer *writer, const Pprof__Profile *part)
{
	size_t size = pprof__profile__get_packed_size(part);
	uint8_t *bytes = writer->error ? NULL : malloc(size);

	if (!bytes) {
		fail(writer, -ENOMEM);
		return;
	}
	pprof__profile__pack(part, bytes);
	compress_bytes(writer, bytes, size, Z_NO_FLUSH);
	free(bytes);
}

/* The number of KEY in TREE; *IS_NEW: it is *NEXT, and had none before. */
static int64_t number_of(struct writer *writer, void **tree, int (*compare)(const void *, const void *),
			 const void *key, int64_t *next, bool *is_new)
{
	struct numbered *wanted = malloc(sizeof(*wanted)), **found;

	*is_new = false;
	if (!wanted) {
		fail(writer, -ENOMEM);
		return 0;
	}
	*wanted = (struct numbered){ .key = key, .number = *next };
	found = tsearch(wanted, tree, compare);
	if (!found)
		fail(writer, -ENOMEM);
	*is_new = found && *found == wanted;
	if (!*is_new)
		free(wanted);
	else
		++*next;
	return found ? (*found)->number : 0;
}

/* The place of TEXT, which stays the caller's as long as the writer. */
static int64_t text(struct writer *writer, const char *string)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	bool is_new;
	int64_t number = number_of(writer, &writer->texts, by_text, string, &writer->text_count, &is_new);

	part.n_string_table = 1;
	part.string_table = (char **)&string;
	if (is_new)
		put(writer, &part);
	return number;
}

/* Names of images in a profile are one pointer each. */
static uint64_t mapping(struct writer *writer, const char *image)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Mapping mapping = PPROF__MAPPING__INIT, *only = &mapping;
	bool is_new;

	mapping.id = (uint64_t)number_of(writer, &writer->images, by_address, image, &writer->image_count,
					 &is_new);
	if (!is_new)
		return mapping.id;
	mapping.filename = text(writer, image);
	mapping.has_functions = true; /* nobody is to look for its names on the machine that reads this */
	part.n_mapping = 1;
	part.mapping = &only;
	put(writer, &part);
	return mapping.id;
}

static void put_function(struct writer *writer, uint64_t id, const char *name)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Function function = PPROF__FUNCTION__INIT, *only = &function;

	function.id = id;
	function.name = function.system_name = text(writer, name);
	function.filename = text(writer, "");
	part.n_function = 1;
	part.function = &only;
	put(writer, &part);
}

/* A location and its function have the frame's number. */
static uint64_t location(struct writer *writer, const struct profile_frame *frame)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Location location = PPROF__LOCATION__INIT, *only = &location;
	Pprof__Line line = PPROF__LINE__INIT, *only_line = &line;
	bool is_new;

	location.id = (uint64_t)number_of(writer, &writer->frames, by_address, frame, &writer->frame_count,
					  &is_new);
	if (!is_new)
		return location.id;
	location.mapping_id = mapping(writer, frame->image);
	if (frame->symbol) {
		put_function(writer, location.id, frame->symbol);
		line.function_id = location.id;
		location.n_line = 1;
		location.line = &only_line;
	} else {
		location.address = frame->address;
	}
	part.n_location = 1;
	part.location = &only;
	put(writer, &part);
	return location.id;
}

/* The frame below all others of a process: names in a profile are one pointer each, and no frame's. */
static uint64_t root_location(struct writer *writer, const char *comm)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Location location = PPROF__LOCATION__INIT, *only = &location;
	Pprof__Line line = PPROF__LINE__INIT, *only_line = &line;
	bool is_new;

	location.id =
		(uint64_t)number_of(writer, &writer->frames, by_address, comm, &writer->frame_count, &is_new);
	if (!is_new)
		return location.id;
	put_function(writer, location.id, comm);
	line.function_id = location.id;
	location.n_line = 1;
	location.line = &only_line;
	part.n_location = 1;
	part.location = &only;
	put(writer, &part);
	return location.id;
}

static size_t value_count(const struct profile_event *event)
{
	return event->unit == PROFILE_NANOSECONDS ? 2 : 1;
}

static void put_type(struct writer *writer, const char *type, const char *unit)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__ValueType value = PPROF__VALUE_TYPE__INIT, *only = &value;

	value.type = text(writer, type);
	value.unit = text(writer, unit);
	part.n_sample_type = 1;
	part.sample_type = &only;
	put(writer, &part);
}

static void put_period(struct writer *writer, const struct profile_event *event)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__ValueType type = PPROF__VALUE_TYPE__INIT;

	if (event->unit != PROFILE_NANOSECONDS || !event->frequency || event->frequency_changed)
		return;
	type.type = text(writer, "cpu");
	type.unit = text(writer, "nanoseconds");
	part.period_type = &type;
	part.period = (int64_t)(NS_PER_S / event->frequency);
	put(writer, &part);
}

static void put_types(struct writer *writer, const struct profile *profile)
{
	for (size_t i = 0; i < profile_event_count(profile); i++) {
		const struct profile_event *event = profile_event(profile, i);

		if (event->unit == PROFILE_NANOSECONDS) {
			put_type(writer, "samples", "count");
			put_type(writer, "cpu", "nanoseconds");
		} else {
			put_type(writer, event->name, "count");
		}
	}
	put_period(writer, profile_event(profile, 0));
}

static void put_head(struct writer *writer, const struct profile *profile)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	const struct perf_data_summary *summary = profile_summary(profile);
	int64_t comment;

	text(writer, ""); /* the first has to be */
	put_types(writer, profile);
	part.time_nanos = (int64_t)(writer->options.from ? writer->options.from : summary->wall_time);
	part.duration_nanos = (int64_t)(writer->options.until - writer->options.from);
	if (*summary->command_line) {
		comment = text(writer, summary->command_line);
		part.n_comment = 1;
		part.comment = &comment;
	}
	put(writer, &part);
}

static void add_text_label(struct writer *writer, Pprof__Sample *sample, const char *key, const char *value)
{
	if (!*value)
		return;
	sample->label[sample->n_label]->key = text(writer, key);
	sample->label[sample->n_label++]->str = text(writer, value);
}

static void add_number_label(struct writer *writer, Pprof__Sample *sample, const char *key, uint32_t value)
{
	sample->label[sample->n_label]->key = text(writer, key);
	sample->label[sample->n_label++]->num = value;
}

static void add_labels(struct writer *writer, Pprof__Sample *sample, const struct profile_stack *stack)
{
	add_text_label(writer, sample, "comm", stack->comm);
	add_text_label(writer, sample, "app", stack->app);
	if (stack->pid && stack->pid < SAMPLE_TASK_LIMIT)
		add_number_label(writer, sample, "pid", stack->pid);
	if (stack->vcpu != UINT32_MAX)
		add_number_label(writer, sample, "vcpu", stack->vcpu);
}

/* VALUES are zeros. */
static void put_stack(struct writer *writer, const struct profile *profile, const struct profile_stack *stack,
		      int64_t *values, size_t count)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Sample sample = PPROF__SAMPLE__INIT, *only = &sample;
	Pprof__Label labels[LABELS_MAX], *places[LABELS_MAX];
	const bool root = writer->options.tasks_as_roots && *stack->comm;
	uint64_t *locations = calloc(stack->depth + root, sizeof(*locations));
	size_t first = 0;

	for (size_t i = 0; i < LABELS_MAX; i++) {
		pprof__label__init(&labels[i]);
		places[i] = &labels[i];
	}
	for (size_t i = 0; i < stack->event; i++)
		first += value_count(profile_event(profile, i));
	if (value_count(profile_event(profile, stack->event)) == VALUES_MAX)
		values[first++] = (int64_t)stack->samples;
	values[first] = (int64_t)stack->weight;
	sample.n_value = count;
	sample.value = values;
	sample.label = places;
	if (!writer->options.tasks_as_roots)
		add_labels(writer, &sample, stack);
	for (size_t i = 0; locations && i < stack->depth; i++)
		locations[i] = location(writer, stack->frames[i]);
	if (locations && root)
		locations[stack->depth] = root_location(writer, stack->comm);
	sample.n_location_id = stack->depth + root;
	sample.location_id = locations;
	part.n_sample = 1;
	part.sample = &only;
	if (locations)
		put(writer, &part);
	else
		fail(writer, -ENOMEM);
	free(locations);
}

static bool is_wanted(const struct writer *writer, const struct profile_stack *stack)
{
	return !writer->options.one_vcpu || stack->vcpu == writer->options.vcpu;
}

static void put_stacks(struct writer *writer, const struct profile *profile)
{
	const size_t events = profile_event_count(profile);
	int64_t *values = calloc(VALUES_MAX * events, sizeof(*values));
	size_t count = 0;

	if (!values) {
		fail(writer, -ENOMEM);
		return;
	}
	for (size_t i = 0; i < events; i++)
		count += value_count(profile_event(profile, i));
	for (size_t i = 0; i < profile_stack_count(profile) && !writer->error; i++) {
		if (!is_wanted(writer, profile_stack(profile, i)))
			continue;
		memset(values, 0, count * sizeof(*values));
		put_stack(writer, profile, profile_stack(profile, i), values, count);
	}
	free(values);
}

int pprof_write(const struct profile *profile, const struct pprof_options *options, FILE *to)
{
	struct writer writer = { .to = to, .image_count = 1, .frame_count = 1 }; /* those of 0 mean none */

	if (options)
		writer.options = *options;
	if (deflateInit2(&writer.stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) !=
	    Z_OK)
		return error_set(-ENOMEM, "no memory for the profile");
	put_head(&writer, profile);
	put_stacks(&writer, profile);
	compress_bytes(&writer, NULL, 0, Z_FINISH);
	if (fflush(to))
		fail(&writer, -errno);
	deflateEnd(&writer.stream);
	tdestroy(writer.texts, free);
	tdestroy(writer.images, free);
	tdestroy(writer.frames, free);
	return writer.error;
}
