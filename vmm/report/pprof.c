/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/pprof.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/pool.h"
#include "shared/sample_record.h"
#include "vmm/report/pprof.pb-c.h"

#define GZIP       (MAX_WBITS + 16) /* deflateInit2() with a gzip header */
#define VALUES_MAX 2                /* of an event */
#define LABELS_MAX 6

/* An object that has a number: a string by content, a function or image by pointer, a location by
 * its frames. */
struct numbered {
	const void *key;
	size_t count; /* of frames */
	int64_t number;
};

/* Concatenated parts of a message are one message, and their repeated fields are appended: so the
 * profile is written in parts, and memory holds only the numbers. */
struct writer {
	FILE *to;
	struct pprof_options options;
	z_stream stream;
	void *texts, *images, *functions, *locations; /* trees of struct numbered */
	void *unnamed; /* the same: unsymbolized locations by image */
	int64_t text_count, image_count, function_count, location_count;
	struct pool pool; /* strings that the profile does not have */
	int error;        /* the first; nothing is written after it */
};

static int by_text(const void *left, const void *right)
{
	return strcmp(((const struct numbered *)left)->key, ((const struct numbered *)right)->key);
}

static int by_address(const void *left, const void *right)
{
	const char *a = ((const struct numbered *)left)->key,
		   *b = ((const struct numbered *)right)->key;

	return (a > b) - (a < b);
}

/* The count of the key is the address of the build id. */
static int by_build(const void *left, const void *right)
{
	const struct numbered *a = left, *b = right;

	return a->count != b->count ? a->count < b->count ? -1 : 1 : by_address(left, right);
}

static int by_frames(const void *left, const void *right)
{
	const struct numbered *a = left, *b = right;

	if (a->count != b->count)
		return a->count < b->count ? -1 : 1;
	return memcmp(a->key, b->key, a->count * sizeof(void *));
}

/* The kind of a function's key, stored as its count: a frame (compared with its source file), or a
 * string (compared as a pointer). */
enum { NAME_OF_PROCESS, FRAME, NAME_OF_IMAGE };

static int by_function(const void *left, const void *right)
{
	const struct numbered *a = left, *b = right;
	const struct profile_frame *first = a->key, *second = b->key;

	if (a->count != b->count)
		return a->count < b->count ? -1 : 1;
	if (a->count != FRAME)
		return by_address(left, right);
	if (first->function != second->function)
		return first->function < second->function ? -1 : 1;
	if (first->image != second->image)
		return first->image < second->image ? -1 : 1;
	return (first->file > second->file) - (first->file < second->file);
}

static void fail(struct writer *writer, int error)
{
	if (writer->error)
		return;
	writer->error = error == -ENOMEM ? error_set(error, "no memory for the profile")
					 : error_set(error, "cannot write the profile: %s",
						     strerror(-error));
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

/* The number of KEY in TREE; *IS_NEW: it was *NEXT, and KEY had none before. */
static int64_t number_of(struct writer *writer, void **tree,
			 int (*compare)(const void *, const void *), const void *key, size_t count,
			 int64_t *next, bool *is_new)
{
	struct numbered *wanted = malloc(sizeof(*wanted)), **found;

	*is_new = false;
	if (!wanted) {
		fail(writer, -ENOMEM);
		return 0;
	}
	*wanted = (struct numbered){ .key = key, .count = count, .number = *next };
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

/* The index of STRING, which must outlive the writer. */
static int64_t text(struct writer *writer, const char *string)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	char *only;
	bool is_new;
	int64_t number =
		number_of(writer, &writer->texts, by_text, string, 1, &writer->text_count, &is_new);

	part.n_string_table = 1;
	memcpy(&only, &string, sizeof(only)); /* protobuf-c does not write to it */
	part.string_table = &only;
	if (is_new)
		put(writer, &part);
	return number;
}

/* Equal names and build ids are equal pointers. */
static uint64_t mapping(struct writer *writer, const struct profile_frame *frame)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Mapping mapping = PPROF__MAPPING__INIT, *only = &mapping;
	bool is_new;

	mapping.id = (uint64_t)number_of(writer, &writer->images, by_build, frame->image,
					 (uintptr_t)frame->build_id, &writer->image_count, &is_new);
	if (!is_new)
		return mapping.id;
	mapping.filename = text(writer, frame->image);
	mapping.build_id = text(writer, frame->build_id);
	mapping.has_functions = true; /* readers must not search symbols on their own machine */
	part.n_mapping = 1;
	part.mapping = &only;
	put(writer, &part);
	return mapping.id;
}

/* KEY is of KIND, see by_function(). */
static uint64_t function(struct writer *writer, const void *key, size_t kind, const char *name,
			 const char *file)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Function function = PPROF__FUNCTION__INIT, *only = &function;
	bool is_new;

	function.id = (uint64_t)number_of(writer, &writer->functions, by_function, key, kind,
					  &writer->function_count, &is_new);
	if (!is_new)
		return function.id;
	function.name = function.system_name = text(writer, name);
	function.filename = text(writer, file ? file : "");
	part.n_function = 1;
	part.function = &only;
	put(writer, &part);
	return function.id;
}

static void put_location(struct writer *writer, Pprof__Location *location, Pprof__Line *lines,
			 size_t count)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Line **list = calloc(count + 1, sizeof(Pprof__Line *));

	if (!list) {
		fail(writer, -ENOMEM);
		return;
	}
	for (size_t i = 0; i < count; i++)
		list[i] = &lines[i];
	location->line = list;
	location->n_line = count;
	part.n_location = 1;
	part.location = &location;
	put(writer, &part);
	free(list);
}

/* The same form as in folded stacks and the flame graph. */
static const char *bracketed(struct writer *writer, const char *image)
{
	const char *kept = NULL;
	char *name;

	if (*image == '[')
		return image;
	if (asprintf(&name, "[%s]", image) >= 0) {
		kept = pool_string(&writer->pool, name);
		free(name);
	}
	if (!kept)
		fail(writer, -ENOMEM);
	return kept ? kept : "";
}

/* One location for all unsymbolized frames of IMAGE. Pyroscope drops locations without a function,
 * and counts their samples for the caller (pkg/phlaredb/symdb/resolver_tree.go). */
static uint64_t unnamed_location(struct writer *writer, const struct profile_frame *frame)
{
	const char *image = frame->image;
	Pprof__Location location = PPROF__LOCATION__INIT;
	Pprof__Line line = PPROF__LINE__INIT;
	bool is_new;

	location.id =
		(uint64_t)number_of(writer, &writer->unnamed, by_build, image,
				    (uintptr_t)frame->build_id, &writer->location_count, &is_new);
	if (!is_new)
		return location.id;
	location.mapping_id = mapping(writer, frame);
	line.function_id = function(writer, image, NAME_OF_IMAGE, bracketed(writer, image), NULL);
	put_location(writer, &location, &line, 1);
	return location.id;
}

/* A location has one line per inlined function, and one for the function that they are inlined
 * into. */
static uint64_t location(struct writer *writer, const struct profile_frame *const *frames,
			 size_t count)
{
	Pprof__Location location = PPROF__LOCATION__INIT;
	const struct profile_frame *last = frames[count - 1];
	Pprof__Line *lines;
	bool is_new;

	if (!last->symbol && writer->options.for_store)
		return unnamed_location(writer, last);
	location.id = (uint64_t)number_of(writer, &writer->locations, by_frames, frames, count,
					  &writer->location_count, &is_new);
	lines = is_new ? calloc(count, sizeof(*lines)) : NULL;
	if (!lines) {
		if (is_new)
			fail(writer, -ENOMEM);
		return location.id;
	}
	location.mapping_id = mapping(writer, last);
	for (size_t i = 0; i < count && last->symbol; i++) {
		pprof__line__init(&lines[i]);
		lines[i].function_id =
			function(writer, frames[i], FRAME, frames[i]->function, frames[i]->file);
		lines[i].line = frames[i]->line;
	}
	if (!last->symbol)
		location.address = last->address;
	put_location(writer, &location, lines, last->symbol ? count : 0);
	free(lines);
	return location.id;
}

/* The outermost frame of a process, keyed by its comm, whose pointer is never that of a frame. */
static uint64_t root_location(struct writer *writer, const char *const *comm)
{
	Pprof__Location location = PPROF__LOCATION__INIT;
	Pprof__Line line = PPROF__LINE__INIT;
	bool is_new;

	location.id = (uint64_t)number_of(writer, &writer->locations, by_frames, comm, 1,
					  &writer->location_count, &is_new);
	if (!is_new)
		return location.id;
	line.function_id = function(writer, *comm, NAME_OF_PROCESS, *comm, NULL);
	put_location(writer, &location, &line, 1);
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

/* Two values of time are distinguished by their event. */
static void put_outside_types(struct writer *writer, const char *event)
{
	char name[64];
	const char *kept;

	snprintf(name, sizeof(name), "%s samples", event);
	kept = pool_string(&writer->pool, name);
	if (kept)
		put_type(writer, kept, "count");
	else
		fail(writer, -ENOMEM);
	put_type(writer, event, "nanoseconds");
}

static void put_types(struct writer *writer, const struct profile *profile)
{
	for (size_t i = 0; i < profile_event_count(profile); i++) {
		const struct profile_event *event = profile_event(profile, i);

		if (event->unit == PROFILE_NANOSECONDS && !strncmp(event->name, "kvm:", 4)) {
			put_outside_types(writer, event->name);
		} else if (event->unit == PROFILE_NANOSECONDS) {
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

	text(writer, ""); /* the first string must be "" */
	put_types(writer, profile);
	part.time_nanos =
		(int64_t)(writer->options.from ? writer->options.from : summary->wall_time);
	part.duration_nanos =
		(int64_t)(writer->options.until ? writer->options.until - writer->options.from
						: profile_duration(profile));
	if (*summary->command_line) {
		comment = text(writer, summary->command_line);
		part.n_comment = 1;
		part.comment = &comment;
	}
	put(writer, &part);
}

static void add_text_label(struct writer *writer, Pprof__Sample *sample, const char *key,
			   const char *value)
{
	if (!*value)
		return;
	sample->label[sample->n_label]->key = text(writer, key);
	sample->label[sample->n_label++]->str = text(writer, value);
}

static void add_number_label(struct writer *writer, Pprof__Sample *sample, const char *key,
			     uint32_t value)
{
	sample->label[sample->n_label]->key = text(writer, key);
	sample->label[sample->n_label++]->num = value;
}

/* As text: readers take a number 0 for no label. */
static void add_vcpu_label(struct writer *writer, Pprof__Sample *sample, uint32_t vcpu)
{
	char digits[16];
	const char *kept;

	snprintf(digits, sizeof(digits), "%u", vcpu);
	kept = pool_string(&writer->pool, digits);
	if (kept)
		add_text_label(writer, sample, "vcpu", kept);
	else
		fail(writer, -ENOMEM);
}

static void add_labels(struct writer *writer, Pprof__Sample *sample,
		       const struct profile_stack *stack)
{
	add_text_label(writer, sample, "comm", stack->comm);
	add_text_label(writer, sample, "app", stack->app);
	add_text_label(writer, sample, "cgroup", stack->cgroup);
	add_text_label(writer, sample, "container", stack->container);
	if (stack->pid && stack->pid < SAMPLE_TASK_LIMIT)
		add_number_label(writer, sample, "pid", stack->pid);
	if (stack->vcpu != UINT32_MAX)
		add_vcpu_label(writer, sample, stack->vcpu);
}

/* LOCATIONS has room for all frames. */
static size_t add_locations(struct writer *writer, uint64_t *locations,
			    const struct profile_stack *stack)
{
	size_t count = 0, first = 0;

	for (size_t i = 0; i < stack->depth; i++) {
		if (stack->frames[i]->inlined && i + 1 < stack->depth)
			continue;
		locations[count++] = location(writer, &stack->frames[first], i + 1 - first);
		first = i + 1;
	}
	return count;
}

/* VALUES are zeros. */
static void put_stack(struct writer *writer, const struct profile *profile,
		      const struct profile_stack *stack, int64_t *values, size_t count)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Sample sample = PPROF__SAMPLE__INIT, *only = &sample;
	Pprof__Label labels[LABELS_MAX], *places[LABELS_MAX];
	const bool root = writer->options.for_store && *stack->comm;
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
	if (!writer->options.for_store)
		add_labels(writer, &sample, stack);
	sample.location_id = locations;
	if (locations)
		sample.n_location_id = add_locations(writer, locations, stack);
	if (locations && root)
		locations[sample.n_location_id++] = root_location(writer, &stack->comm);
	part.n_sample = 1;
	part.sample = &only;
	if (locations)
		put(writer, &part);
	else
		fail(writer, -ENOMEM);
	free(locations);
}

static bool is_selected(const struct writer *writer, const struct profile_stack *stack)
{
	return !writer->options.one_vcpu || stack->vcpu == writer->options.vcpu;
}

/* Readers take the first mapping for the program: an image with a build id, if there is one. */
static void put_program(struct writer *writer, const struct profile *profile)
{
	for (size_t i = 0; i < profile_stack_count(profile); i++) {
		const struct profile_stack *stack = profile_stack(profile, i);

		for (size_t j = 0; j < stack->depth; j++)
			if (*stack->frames[j]->build_id) {
				mapping(writer, stack->frames[j]);
				return;
			}
	}
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
		if (!is_selected(writer, profile_stack(profile, i)))
			continue;
		memset(values, 0, count * sizeof(*values));
		put_stack(writer, profile, profile_stack(profile, i), values, count);
	}
	free(values);
}

int pprof_write(const struct profile *profile, const struct pprof_options *options, FILE *to)
{
	struct writer writer = {
		.to = to, .image_count = 1, .function_count = 1, .location_count = 1
	}; /* 0 means none */

	if (options)
		writer.options = *options;
	if (deflateInit2(&writer.stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP, 8,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return error_set(-ENOMEM, "no memory for the profile");
	put_head(&writer, profile);
	put_program(&writer, profile);
	put_stacks(&writer, profile);
	compress_bytes(&writer, NULL, 0, Z_FINISH);
	if (fflush(to))
		fail(&writer, -errno);
	deflateEnd(&writer.stream);
	tdestroy(writer.texts, free);
	tdestroy(writer.images, free);
	tdestroy(writer.functions, free);
	tdestroy(writer.locations, free);
	tdestroy(writer.unnamed, free);
	pool_free(&writer.pool);
	return writer.error;
}
