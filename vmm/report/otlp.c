/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/otlp.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "shared/error.h"
#include "shared/pool.h"
#include "shared/printable.h"
#include "shared/unconst.h"
#include "vmm/report/otlp.pb-c.h"
#include "vmm/report/pprof.pb-c.h"

#define GZIP       (MAX_WBITS + 16) /* inflateInit2() with a gzip header */
#define UNZIP_MAX  (256u << 20)     /* of a profile; those of 15 seconds have about 1 MiB */
#define TABLE_MAX  (INT32_MAX / 2)  /* indices are int32 */
#define KEYS_COUNT (sizeof(keys) / sizeof(keys[0]))

/* Labels of pprof_write() and their names in the semantic conventions. */
static const struct {
	const char *label, *attribute;
	bool number;
} keys[] = {
	{ "comm", "thread.name", false },
	{ "app", "process.executable.name", false },
	{ "cgroup", "process.linux.cgroup", false },
	{ "container", "container.id", false },
	{ "pid", "process.pid", true },
	{ "vcpu", "cpu.logical_number", true },
	{ NULL, "process.executable.build_id.gnu", false }, /* of mappings */
};
#define BUILD_ID (KEYS_COUNT - 1)

/* A key and value that has a place in the attribute table. */
struct attribute {
	size_t key; /* in keys */
	int64_t text, number;
};

struct builder {
	const Pprof__Profile *from;
	Otlp__ProfilesDictionary *to;
	struct pool pool;
	struct attribute *attributes; /* sorted, without duplicates */
	size_t attribute_count;
	const Pprof__Sample **stacks; /* the same: one sample of each stack */
	size_t stack_count;
	bool failed; /* no memory */
};

static void *allocate(struct builder *builder, size_t count, size_t size)
{
	void *memory = pool_alloc(&builder->pool, count * size + 1);

	builder->failed |= !memory;
	return memory;
}

static void *message(struct builder *builder, const ProtobufCMessageDescriptor *type)
{
	void *memory = allocate(builder, 1, type->sizeof_message);

	if (memory)
		protobuf_c_message_init(type, memory);
	return memory;
}

/* COUNT messages, and pointers to them as repeated fields have them. NULL without memory. */
static void *messages(struct builder *builder, const ProtobufCMessageDescriptor *type, size_t count)
{
	void **pointers = allocate(builder, count, sizeof(void *));

	for (size_t i = 0; pointers && i < count; i++) {
		pointers[i] = message(builder, type);
		if (!pointers[i])
			return NULL;
	}
	return pointers;
}

/* The input */

static int unzip(const void *from, size_t size, uint8_t **bytes, size_t *length)
{
	z_stream stream = { .next_in = unconst(from), .avail_in = (uInt)size };
	size_t room = size * 8 + 4096;
	int state = inflateInit2(&stream, GZIP);
	uint8_t *larger;

	*bytes = NULL;
	while (state == Z_OK && room <= UNZIP_MAX) {
		larger = realloc(*bytes, room);
		if (!larger)
			state = Z_MEM_ERROR;
		if (!larger)
			break;
		*bytes = larger;
		stream.next_out = *bytes + stream.total_out;
		stream.avail_out = (uInt)(room - stream.total_out);
		state = inflate(&stream, Z_NO_FLUSH);
		room *= 2;
	}
	*length = stream.total_out;
	inflateEnd(&stream);
	return state == Z_STREAM_END ? 0 : state == Z_MEM_ERROR ? -ENOMEM : -EINVAL;
}

static bool has_text(const Pprof__Profile *from, int64_t text)
{
	return text >= 0 && (uint64_t)text < from->n_string_table;
}

static bool are_mappings_good(const Pprof__Profile *from)
{
	for (size_t i = 0; i < from->n_mapping; i++)
		if (from->mapping[i]->id != i + 1 || !has_text(from, from->mapping[i]->filename) ||
		    !has_text(from, from->mapping[i]->build_id))
			return false;
	return true;
}

static bool are_functions_good(const Pprof__Profile *from)
{
	for (size_t i = 0; i < from->n_function; i++)
		if (from->function[i]->id != i + 1 || !has_text(from, from->function[i]->name) ||
		    !has_text(from, from->function[i]->system_name) ||
		    !has_text(from, from->function[i]->filename))
			return false;
	return true;
}

static bool are_locations_good(const Pprof__Profile *from)
{
	for (size_t i = 0; i < from->n_location; i++) {
		const Pprof__Location *location = from->location[i];

		if (location->id != i + 1 || location->mapping_id > from->n_mapping)
			return false;
		for (size_t j = 0; j < location->n_line; j++)
			if (location->line[j]->function_id > from->n_function)
				return false;
	}
	return true;
}

static bool is_sample_good(const Pprof__Profile *from, const Pprof__Sample *sample)
{
	if (sample->n_value != from->n_sample_type)
		return false;
	for (size_t i = 0; i < sample->n_location_id; i++)
		if (sample->location_id[i] > from->n_location)
			return false;
	for (size_t i = 0; i < sample->n_label; i++)
		if (!has_text(from, sample->label[i]->key) ||
		    !has_text(from, sample->label[i]->str))
			return false;
	return true;
}

/* Numbers are places in tables: pprof_write() assigns them in that order. */
static bool is_good(const Pprof__Profile *from)
{
	if (!from->n_string_table || from->n_string_table > TABLE_MAX ||
	    from->n_sample > TABLE_MAX || from->n_location > TABLE_MAX ||
	    !are_mappings_good(from) || !are_functions_good(from) || !are_locations_good(from))
		return false;
	for (size_t i = 0; i < from->n_sample_type; i++)
		if (!has_text(from, from->sample_type[i]->type) ||
		    !has_text(from, from->sample_type[i]->unit))
			return false;
	for (size_t i = 0; i < from->n_sample; i++)
		if (!is_sample_good(from, from->sample[i]))
			return false;
	return !from->period_type ||
	       (has_text(from, from->period_type->type) && has_text(from, from->period_type->unit));
}

/* The dictionary */

static void add_strings(struct builder *builder)
{
	const Pprof__Profile *from = builder->from;
	char **strings = allocate(builder, from->n_string_table + KEYS_COUNT, sizeof(*strings));

	if (!strings)
		return;
	memcpy(strings, from->string_table, from->n_string_table * sizeof(*strings));
	for (size_t i = 0; i < KEYS_COUNT; i++)
		strings[from->n_string_table + i] = unconst(keys[i].attribute);
	builder->to->string_table = strings;
	builder->to->n_string_table = from->n_string_table + KEYS_COUNT;
}

static int by_attribute(const void *left, const void *right)
{
	const struct attribute *a = left, *b = right;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	if (a->text != b->text)
		return a->text < b->text ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

/* False for a label without a name. */
static bool to_attribute(const struct builder *builder, const Pprof__Label *label,
			 struct attribute *attribute)
{
	const char *const *texts = (const char *const *)builder->from->string_table;

	for (size_t i = 0; i < BUILD_ID; i++)
		if (!strcmp(texts[label->key], keys[i].label)) {
			*attribute = (struct attribute){ .key = i };
			if (!keys[i].number)
				attribute->text = label->str;
			else
				attribute->number =
					label->str ? atoll(texts[label->str]) : label->num;
			return true;
		}
	return false;
}

static size_t collect_attributes(const struct builder *builder, struct attribute *attributes)
{
	const Pprof__Profile *from = builder->from;
	size_t count = 0;

	for (size_t i = 0; i < from->n_sample; i++)
		for (size_t j = 0; j < from->sample[i]->n_label; j++)
			count += to_attribute(builder, from->sample[i]->label[j],
					      &attributes[count]);
	for (size_t i = 0; i < from->n_mapping; i++)
		if (from->mapping[i]->build_id)
			attributes[count++] =
				(struct attribute){ .key = BUILD_ID,
						    .text = from->mapping[i]->build_id };
	return count;
}

static size_t remove_duplicates(struct attribute *attributes, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (!kept || by_attribute(&attributes[kept - 1], &attributes[i]) != 0)
			attributes[kept++] = attributes[i];
	return kept;
}

static void put_attribute(struct builder *builder, Otlp__KeyValueAndUnit *to,
			  const struct attribute *attribute)
{
	to->key_strindex = (int32_t)(builder->from->n_string_table + attribute->key);
	to->value = message(builder, &otlp__any_value__descriptor);
	if (!to->value)
		return;
	if (keys[attribute->key].number) {
		to->value->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
		to->value->int_value = attribute->number;
	} else {
		to->value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
		to->value->string_value = builder->from->string_table[attribute->text];
	}
}

static void add_attributes(struct builder *builder)
{
	const Pprof__Profile *from = builder->from;
	size_t count = from->n_mapping;

	for (size_t i = 0; i < from->n_sample; i++)
		count += from->sample[i]->n_label;
	builder->attributes = allocate(builder, count + 1, sizeof(*builder->attributes));
	if (!builder->attributes)
		return;
	count = collect_attributes(builder, builder->attributes);
	qsort(builder->attributes, count, sizeof(*builder->attributes), by_attribute);
	count = remove_duplicates(builder->attributes, count);
	builder->attribute_count = count;
	builder->to->attribute_table =
		messages(builder, &otlp__key_value_and_unit__descriptor, count + 1);
	builder->to->n_attribute_table = builder->failed ? 0 : count + 1;
	for (size_t i = 0; i < count && !builder->failed; i++)
		put_attribute(builder, builder->to->attribute_table[i + 1],
			      &builder->attributes[i]);
}

static int32_t attribute_index(const struct builder *builder, const struct attribute *attribute)
{
	const struct attribute *found =
		bsearch(attribute, builder->attributes, builder->attribute_count,
			sizeof(*attribute), by_attribute);

	return found ? (int32_t)(found - builder->attributes) + 1 : 0;
}

static void add_mappings(struct builder *builder)
{
	const Pprof__Profile *from = builder->from;
	Otlp__Mapping **to = messages(builder, &otlp__mapping__descriptor, from->n_mapping + 1);

	for (size_t i = 0; i < from->n_mapping && !builder->failed; i++) {
		const struct attribute build = { .key = BUILD_ID,
						 .text = from->mapping[i]->build_id };

		to[i + 1]->filename_strindex = (int32_t)from->mapping[i]->filename;
		to[i + 1]->attribute_indices = allocate(builder, 1, sizeof(int32_t));
		if (!build.text || builder->failed)
			continue;
		*to[i + 1]->attribute_indices = attribute_index(builder, &build);
		to[i + 1]->n_attribute_indices = 1;
	}
	builder->to->mapping_table = to;
	builder->to->n_mapping_table = from->n_mapping + 1;
}

static void add_functions(struct builder *builder)
{
	const Pprof__Profile *from = builder->from;
	Otlp__Function **to = messages(builder, &otlp__function__descriptor, from->n_function + 1);

	for (size_t i = 0; i < from->n_function && !builder->failed; i++) {
		to[i + 1]->name_strindex = (int32_t)from->function[i]->name;
		to[i + 1]->system_name_strindex = (int32_t)from->function[i]->system_name;
		to[i + 1]->filename_strindex = (int32_t)from->function[i]->filename;
	}
	builder->to->function_table = to;
	builder->to->n_function_table = from->n_function + 1;
}

static void put_location(struct builder *builder, Otlp__Location *to, const Pprof__Location *from)
{
	to->mapping_index = (int32_t)from->mapping_id;
	to->address = from->address;
	to->lines = messages(builder, &otlp__line__descriptor, from->n_line);
	to->n_lines = from->n_line;
	for (size_t i = 0; i < from->n_line && !builder->failed; i++) {
		to->lines[i]->function_index = (int32_t)from->line[i]->function_id;
		to->lines[i]->line = from->line[i]->line;
	}
}

static void add_locations(struct builder *builder)
{
	const Pprof__Profile *from = builder->from;
	Otlp__Location **to = messages(builder, &otlp__location__descriptor, from->n_location + 1);

	for (size_t i = 0; i < from->n_location && !builder->failed; i++)
		put_location(builder, to[i + 1], from->location[i]);
	builder->to->location_table = to;
	builder->to->n_location_table = from->n_location + 1;
}

/* By pointers to samples. */
static int by_stack(const void *left, const void *right)
{
	const Pprof__Sample *a = *(const Pprof__Sample *const *)left,
			    *b = *(const Pprof__Sample *const *)right;

	if (a->n_location_id != b->n_location_id)
		return a->n_location_id < b->n_location_id ? -1 : 1;
	return a->n_location_id ? memcmp(a->location_id, b->location_id,
					 a->n_location_id * sizeof(*a->location_id))
				: 0;
}

static void put_stack(struct builder *builder, Otlp__Stack *to, const Pprof__Sample *from)
{
	to->location_indices = allocate(builder, from->n_location_id, sizeof(int32_t));
	to->n_location_indices = from->n_location_id;
	for (size_t i = 0; i < from->n_location_id && !builder->failed; i++)
		to->location_indices[i] = (int32_t)from->location_id[i];
}

static void add_stacks(struct builder *builder)
{
	const Pprof__Profile *from = builder->from;
	const Pprof__Sample **stacks = allocate(builder, from->n_sample, sizeof(void *));
	Otlp__Stack **to;
	size_t count = 0;

	if (!stacks)
		return;
	for (size_t i = 0; i < from->n_sample; i++)
		stacks[i] = from->sample[i];
	qsort(stacks, from->n_sample, sizeof(void *), by_stack);
	for (size_t i = 0; i < from->n_sample; i++)
		if (stacks[i]->n_location_id &&
		    (!count || by_stack(&stacks[count - 1], &stacks[i]) != 0))
			stacks[count++] = stacks[i];
	builder->stacks = stacks;
	builder->stack_count = count;
	to = messages(builder, &otlp__stack__descriptor, count + 1);
	for (size_t i = 0; i < count && !builder->failed; i++)
		put_stack(builder, to[i + 1], stacks[i]);
	builder->to->stack_table = to;
	builder->to->n_stack_table = count + 1;
}

static void build_dictionary(struct builder *builder)
{
	builder->to = message(builder, &otlp__profiles_dictionary__descriptor);
	if (!builder->to)
		return;
	add_strings(builder);
	add_attributes(builder);
	add_mappings(builder);
	add_functions(builder);
	add_locations(builder);
	add_stacks(builder);
	builder->to->link_table = messages(builder, &otlp__link__descriptor, 1);
	builder->to->n_link_table = 1;
}

/* The profiles */

static void put_sample(struct builder *builder, Otlp__Sample *to, const Pprof__Sample *from,
		       size_t type)
{
	const Pprof__Sample **stack =
		bsearch(&from, builder->stacks, builder->stack_count, sizeof(void *), by_stack);
	struct attribute attribute;

	to->stack_index = stack ? (int32_t)(stack - builder->stacks) + 1 : 0;
	to->values = &from->value[type];
	to->n_values = 1;
	to->attribute_indices = allocate(builder, from->n_label, sizeof(int32_t));
	for (size_t i = 0; i < from->n_label && !builder->failed; i++)
		if (to_attribute(builder, from->label[i], &attribute))
			to->attribute_indices[to->n_attribute_indices++] =
				attribute_index(builder, &attribute);
}

static Otlp__ValueType *value_type(struct builder *builder, const Pprof__ValueType *from)
{
	Otlp__ValueType *to = from ? message(builder, &otlp__value_type__descriptor) : NULL;

	if (to) {
		to->type_strindex = (int32_t)from->type;
		to->unit_strindex = (int32_t)from->unit;
	}
	return to;
}

/* One profile per type of value: they differ in the last byte of their ids. */
static void put_profile(struct builder *builder, Otlp__Profile *to,
			const struct otlp_source *source, size_t type)
{
	const Pprof__Profile *from = builder->from;

	to->sample_type = value_type(builder, from->sample_type[type]);
	to->time_unix_nano = (uint64_t)from->time_nanos;
	to->duration_nano = (uint64_t)from->duration_nanos;
	to->period_type = value_type(builder, from->period_type);
	to->period = from->period;
	to->profile_id.data = allocate(builder, 1, OTLP_ID_SIZE);
	to->samples = messages(builder, &otlp__sample__descriptor, from->n_sample);
	if (builder->failed)
		return;
	memcpy(to->profile_id.data, source->id, OTLP_ID_SIZE);
	to->profile_id.data[OTLP_ID_SIZE - 1] ^= (uint8_t)type;
	to->profile_id.len = OTLP_ID_SIZE;
	for (size_t i = 0; i < from->n_sample; i++)
		if (from->sample[i]->value[type])
			put_sample(builder, to->samples[to->n_samples++], from->sample[i], type);
}

static Otlp__ScopeProfiles *build_scope(struct builder *builder, const struct otlp_source *source)
{
	const size_t count = builder->from->n_sample_type;
	Otlp__ScopeProfiles *to = message(builder, &otlp__scope_profiles__descriptor);

	if (!to)
		return NULL;
	to->scope = message(builder, &otlp__instrumentation_scope__descriptor);
	to->profiles = messages(builder, &otlp__profile__descriptor, count);
	if (builder->failed)
		return NULL;
	to->scope->name = unconst("kvmscope");
	to->scope->version = unconst(KVMSCOPE_VERSION);
	to->n_profiles = count;
	for (size_t i = 0; i < count && !builder->failed; i++)
		put_profile(builder, to->profiles[i], source, i);
	return to;
}

static void put_resource_attribute(struct builder *builder, Otlp__Resource *resource,
				   const char *key, const char *text, int64_t number)
{
	Otlp__KeyValue *to = message(builder, &otlp__key_value__descriptor);
	Otlp__AnyValue *value = message(builder, &otlp__any_value__descriptor);

	if (!to || !value)
		return;
	value->value_case =
		text ? OTLP__ANY_VALUE__VALUE_STRING_VALUE : OTLP__ANY_VALUE__VALUE_INT_VALUE;
	if (text)
		value->string_value = unconst(text);
	else
		value->int_value = number;
	to->key = unconst(key);
	to->value = value;
	resource->attributes[resource->n_attributes++] = to;
}

static Otlp__Resource *build_resource(struct builder *builder, const struct otlp_source *source)
{
	Otlp__Resource *to = message(builder, &otlp__resource__descriptor);

	if (!to)
		return NULL;
	to->attributes = allocate(builder, 3, sizeof(void *));
	if (builder->failed)
		return NULL;
	put_resource_attribute(builder, to, "service.name", source->domain, 0);
	put_resource_attribute(builder, to, "host.name", source->host, 0);
	if (source->vcpu != UINT32_MAX)
		put_resource_attribute(builder, to, "kvmscope.vcpu", NULL, source->vcpu);
	return to;
}

static Otlp__ExportProfilesServiceRequest *build(struct builder *builder,
						 const struct otlp_source *source)
{
	Otlp__ExportProfilesServiceRequest *request =
		message(builder, &otlp__export_profiles_service_request__descriptor);
	Otlp__ResourceProfiles **profiles =
		messages(builder, &otlp__resource_profiles__descriptor, 1);
	Otlp__ScopeProfiles **scopes = allocate(builder, 1, sizeof(void *));

	build_dictionary(builder);
	if (builder->failed)
		return NULL;
	request->dictionary = builder->to;
	request->resource_profiles = profiles;
	request->n_resource_profiles = 1;
	profiles[0]->resource = build_resource(builder, source);
	profiles[0]->scope_profiles = scopes;
	profiles[0]->n_scope_profiles = 1;
	scopes[0] = build_scope(builder, source);
	return builder->failed ? NULL : request;
}

static int convert(const Pprof__Profile *from, const struct otlp_source *source, uint8_t **request,
		   size_t *request_size)
{
	struct builder builder = { .from = from };
	const Otlp__ExportProfilesServiceRequest *to;

	if (!is_good(from))
		return error_set(-EINVAL, "the profile is damaged");
	to = build(&builder, source);
	if (to) {
		*request_size = otlp__export_profiles_service_request__get_packed_size(to);
		*request = malloc(*request_size + 1);
		builder.failed = !*request;
		if (*request)
			otlp__export_profiles_service_request__pack(to, *request);
	}
	pool_free(&builder.pool);
	return builder.failed ? error_set(-ENOMEM, "no memory to convert a profile") : 0;
}

int otlp_from_pprof(const void *pprof, size_t size, const struct otlp_source *source,
		    uint8_t **request, size_t *request_size)
{
	Pprof__Profile *profile;
	uint8_t *bytes;
	size_t length;
	int error = unzip(pprof, size, &bytes, &length);

	*request = NULL;
	profile = error ? NULL : pprof__profile__unpack(NULL, length, bytes);
	free(bytes);
	if (profile)
		error = convert(profile, source, request, request_size);
	else if (error != -ENOMEM)
		error = error_set(-EINVAL, "the profile is damaged");
	else
		error_set(error, "no memory to convert a profile");
	if (profile)
		pprof__profile__free_unpacked(profile, NULL);
	return error;
}

uint64_t otlp_rejected(const void *answer, size_t size, char *why, size_t why_size)
{
	Otlp__ExportProfilesServiceResponse *response =
		otlp__export_profiles_service_response__unpack(NULL, size, answer);
	const Otlp__ExportProfilesPartialSuccess *partial =
		response ? response->partial_success : NULL;
	uint64_t rejected = partial && partial->rejected_profiles > 0
				    ? (uint64_t)partial->rejected_profiles
				    : 0;

	snprintf(why, why_size, "%s", partial ? partial->error_message : "");
	make_printable(why);
	if (response)
		otlp__export_profiles_service_response__free_unpacked(response, NULL);
	return rejected;
}
