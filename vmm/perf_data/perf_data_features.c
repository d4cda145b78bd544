/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_writer_state.h"

#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"

/* perf pads strings to a multiple of this (NAME_ALIGN of tools/perf/util/header.c). */
#define STRING_ALIGNMENT 64

/* Features known at the start; the compression comes before the first compressed record. */
static const enum perf_data_feature early_features[] = {
	FEATURE_COMPRESSED, FEATURE_HOSTNAME, FEATURE_OSRELEASE,  FEATURE_VERSION,
	FEATURE_ARCH,       FEATURE_NRCPUS,   FEATURE_CPUDESC,    FEATURE_CPUID,
	FEATURE_TOTAL_MEM,  FEATURE_CMDLINE,  FEATURE_EVENT_DESC, FEATURE_CLOCKID,
	FEATURE_CLOCK_DATA,
};

static void add_string(struct bytes *to, const char *string)
{
	size_t size = strlen(string) + 1;
	size_t padded = (size + STRING_ALIGNMENT - 1) / STRING_ALIGNMENT * STRING_ALIGNMENT;

	bytes_add_u32(to, (uint32_t)padded);
	bytes_add(to, string, size);
	bytes_add_zeros(to, padded - size);
}

static bool add_fact(struct bytes *to, const char *fact)
{
	add_string(to, *fact ? fact : PERF_DATA_UNKNOWN);
	return true;
}

static bool add_command_line(struct bytes *to, const char *command_line)
{
	bytes_add_u32(to, 1);
	return add_fact(to, command_line);
}

static void add_event(struct bytes *to, const struct perf_data_facts *facts,
		      const struct perf_event_attr *attribute, const char *name, uint64_t first_id)
{
	bytes_add(to, attribute, facts->attribute.size);
	bytes_add_u32(to, (uint32_t)facts->ids);
	add_string(to, name);
	for (uint64_t id = 0; id < facts->ids; id++)
		bytes_add_u64(to, first_id + id);
}

static bool add_event_description(struct bytes *to, const struct perf_data_facts *facts)
{
	bytes_add_u32(to, (uint32_t)(1 + facts->more_count));
	bytes_add_u32(to, facts->attribute.size);
	add_event(to, facts, &facts->attribute, facts->event_name, 1);
	for (size_t i = 0; i < facts->more_count; i++)
		add_event(to, facts, &facts->more[i].attribute, facts->more[i].name,
			  1 + (i + 1) * facts->ids);
	return true;
}

/* perf annotate refuses files in which this is not a string and three numbers (x86__cpuid_parse()
 * of tools/perf/arch/x86/annotate/instructions.c). */
static bool add_cpuid(struct bytes *to, const struct perf_data_facts *facts)
{
	add_string(to, *facts->cpuid ? facts->cpuid : PERF_DATA_UNKNOWN ",0,0,0");
	return true;
}

static bool add_compressed(struct bytes *to, const struct perf_data_facts *facts)
{
	if (!facts->compression)
		return false;
	bytes_add_u32(to, 1); /* version */
	bytes_add_u32(to, PERF_DATA_ZSTD);
	bytes_add_u32(to, facts->compression);
	bytes_add_u32(to, facts->ratio);
	bytes_add_u32(to, PERF_DATA_OUTPUT_CHUNK);
	return true;
}

static bool add_clock_resolution(struct bytes *to)
{
	struct timespec resolution;

	if (clock_getres(CLOCK_MONOTONIC_RAW, &resolution))
		return false;
	bytes_add_u64(to, (uint64_t)resolution.tv_sec * NS_PER_S + (uint64_t)resolution.tv_nsec);
	return true;
}

static bool add_clock_data(struct bytes *to, const struct perf_data_facts *facts)
{
	if (!facts->wall_time)
		return false;
	bytes_add_u32(to, 1); /* version */
	bytes_add_u32(to, CLOCK_MONOTONIC_RAW);
	bytes_add_u64(to, facts->wall_time);
	bytes_add_u64(to, facts->clock_time);
	return true;
}

static bool add_cpus(struct bytes *to, const struct perf_data_facts *facts)
{
	if (!facts->cpus)
		return false;
	bytes_add_u32(to, facts->cpus); /* available */
	bytes_add_u32(to, facts->cpus); /* online */
	return true;
}

static bool add_sample_time(struct bytes *to, const struct perf_data_facts *facts)
{
	if (!facts->last_time)
		return false;
	bytes_add_u64(to, facts->first_time);
	bytes_add_u64(to, facts->last_time);
	return true;
}

static bool add_memory(struct bytes *to, const struct perf_data_facts *facts)
{
	if (facts->memory_kib)
		bytes_add_u64(to, facts->memory_kib);
	return facts->memory_kib;
}

static bool add_build_ids(struct bytes *to, const struct perf_data_facts *facts)
{
	bytes_add(to, facts->build_ids.data, facts->build_ids.size);
	return facts->build_ids.size;
}

static bool add_feature(const struct perf_data_facts *facts, enum perf_data_feature feature,
			struct bytes *to)
{
	switch (feature) {
	case FEATURE_BUILD_ID:
		return add_build_ids(to, facts);
	case FEATURE_HOSTNAME:
		return add_fact(to, facts->hostname);
	case FEATURE_OSRELEASE:
		return add_fact(to, facts->release);
	case FEATURE_VERSION:
		return add_fact(to, "kvmscope " KVMSCOPE_VERSION);
	case FEATURE_ARCH:
		return add_fact(to, "x86_64");
	case FEATURE_NRCPUS:
		return add_cpus(to, facts);
	case FEATURE_CPUDESC:
		return add_fact(to, facts->cpu_description);
	case FEATURE_CPUID:
		return add_cpuid(to, facts);
	case FEATURE_TOTAL_MEM:
		return add_memory(to, facts);
	case FEATURE_CMDLINE:
		return add_command_line(to, facts->command_line);
	case FEATURE_EVENT_DESC:
		return add_event_description(to, facts);
	case FEATURE_SAMPLE_TIME:
		return add_sample_time(to, facts);
	case FEATURE_CLOCKID:
		return add_clock_resolution(to);
	case FEATURE_COMPRESSED:
		return add_compressed(to, facts);
	case FEATURE_CLOCK_DATA:
		return add_clock_data(to, facts);
	default:
		return false;
	}
}

void perf_data_feature_record(const struct perf_data_facts *facts, enum perf_data_feature feature,
			      struct bytes *to)
{
	struct perf_event_header header = { .type = PERF_DATA_HEADER_FEATURE };
	size_t start = to->size;

	bytes_add(to, &header, sizeof(header));
	bytes_add_u64(to, feature);
	if (!add_feature(facts, feature, to) || to->size - start > PERF_DATA_RECORD_MAX - 8) {
		to->size = start;
		return;
	}
	bytes_add_zeros(to, (8 - (to->size - start) % 8) % 8);
	header.size = (uint16_t)(to->size - start);
	if (!to->failed)
		memcpy(to->data + start, &header, sizeof(header));
}

void perf_data_feature_records(const struct perf_data_facts *facts, struct bytes *to)
{
	for (size_t i = 0; i < sizeof(early_features) / sizeof(early_features[0]); i++)
		perf_data_feature_record(facts, early_features[i], to);
}

static size_t find_sections(const struct perf_data_facts *facts, struct perf_data_section *sections,
			    struct bytes *contents, uint64_t bitmap[4])
{
	size_t count = 0;

	for (unsigned int feature = 1; feature < FEATURE_COUNT; feature++) {
		size_t start = contents->size;

		if (!add_feature(facts, feature, contents))
			continue;
		bitmap[feature / 64] |= 1ull << feature % 64;
		sections[count++] = (struct perf_data_section){ start, contents->size - start };
	}
	return count;
}

void perf_data_feature_sections(const struct perf_data_facts *facts, uint64_t offset,
				struct bytes *to, uint64_t bitmap[4])
{
	struct perf_data_section sections[FEATURE_COUNT];
	struct bytes contents = { 0 };
	size_t count = find_sections(facts, sections, &contents, bitmap);

	for (size_t i = 0; i < count; i++)
		sections[i].offset += offset + count * sizeof(sections[0]);
	bytes_add(to, sections, count * sizeof(sections[0]));
	bytes_add(to, contents.data, contents.size);
	to->failed |= contents.failed;
	free(contents.data);
}

void perf_data_add_build_id(struct perf_data_facts *facts, uint16_t misc, int32_t pid,
			    const char *name, const uint8_t *build_id, size_t build_id_size)
{
	size_t name_size =
		(strlen(name) + 1 + STRING_ALIGNMENT - 1) / STRING_ALIGNMENT * STRING_ALIGNMENT;
	uint8_t field[PERF_DATA_BUILD_ID_FIELD] = { 0 };
	struct perf_event_header header = {
		.misc = misc | PERF_DATA_MISC_BUILD_ID_SIZE,
		.size = (uint16_t)(sizeof(header) + sizeof(pid) + sizeof(field) + name_size),
	};

	memcpy(field, build_id, build_id_size);
	field[20] = (uint8_t)build_id_size;
	bytes_add(&facts->build_ids, &header, sizeof(header));
	bytes_add(&facts->build_ids, &pid, sizeof(pid));
	bytes_add(&facts->build_ids, field, sizeof(field));
	bytes_add(&facts->build_ids, name, strlen(name));
	bytes_add_zeros(&facts->build_ids, name_size - strlen(name));
}
