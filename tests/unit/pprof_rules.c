/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources in Pyroscope: pkg/validation/validate.go and limits.go (what is rejected),
 * pkg/pprof/pprof.go (sanitizeProfile(): what is dropped), pkg/phlaredb/symdb/resolver_tree.go
 * (what is displayed).
 */
#include "tests/unit/pprof_rules.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "shared/unconst.h"
#include "vmm/report/pprof.pb-c.h"

/* Its default limits. */
#define SIZE_LIMIT    (4 << 20)
#define SAMPLES_LIMIT 16000
#define DEPTH_LIMIT   1000

#define NS_PER_S 1000000000

/* Size of a complete stream with nothing after it; 0: it is invalid or too large. */
static size_t unpack_gzip(const void *bytes, size_t size, uint8_t *to)
{
	z_stream stream = { .next_in = unconst(bytes),
			    .avail_in = (uInt)size,
			    .next_out = to,
			    .avail_out = SIZE_LIMIT };
	bool whole;

	if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK)
		return 0;
	whole = inflate(&stream, Z_FINISH) == Z_STREAM_END && !stream.avail_in;
	inflateEnd(&stream);
	return whole ? stream.total_out : 0;
}

static const char *text(const Pprof__Profile *profile, int64_t index)
{
	return index >= 0 && (size_t)index < profile->n_string_table ? profile->string_table[index]
								     : "";
}

static bool has_function(const Pprof__Profile *profile, uint64_t id)
{
	for (size_t i = 0; i < profile->n_function; i++)
		if (profile->function[i]->id == id)
			return *text(profile, profile->function[i]->name);
	return false;
}

static bool has_mapping(const Pprof__Profile *profile, uint64_t id)
{
	for (size_t i = 0; i < profile->n_mapping; i++)
		if (profile->mapping[i]->id == id)
			return true;
	return !id; /* it gets an empty one */
}

/* The name of a metric is derived from it, unless it is a clock's. */
static bool is_type(const char *type)
{
	for (const char *at = type; *at; at++)
		if (!isalnum((unsigned char)*at) && *at != '_')
			return false;
	return isalpha((unsigned char)*type);
}

static const char *check_types(const Pprof__Profile *profile)
{
	if (!profile->n_sample_type)
		return "it has no types of samples";
	for (size_t i = 0; i < profile->n_sample_type; i++)
		if (!is_type(text(profile, profile->sample_type[i]->type)) ||
		    !is_type(text(profile, profile->sample_type[i]->unit)))
			return "a type of samples has a name that is refused";
	return NULL;
}

static const char *check_location(const Pprof__Profile *profile, const Pprof__Location *location)
{
	if (!location->id)
		return "a location's id is 0";
	if (!has_mapping(profile, location->mapping_id))
		return "a location is of no mapping: it goes with all of its samples";
	if (!location->n_line)
		return "a location has no function: its samples are its caller's";
	for (size_t i = 0; i < location->n_line; i++)
		if (!has_function(profile, location->line[i]->function_id))
			return "a location is of no function, or of one without a name";
	return NULL;
}

static const char *find_location(const Pprof__Profile *profile, uint64_t id)
{
	for (size_t i = 0; i < profile->n_location; i++)
		if (profile->location[i]->id == id)
			return NULL;
	return "a sample is of a location that is not there: it goes";
}

static const char *check_sample(const Pprof__Profile *profile, const Pprof__Sample *sample)
{
	const char *broken = NULL;
	bool counts = false;

	if (sample->n_value != profile->n_sample_type)
		return "a sample has not one value of each type: it goes";
	for (size_t i = 0; i < sample->n_value; i++)
		counts |= sample->value[i] > 0;
	if (!counts || !sample->n_location_id)
		return "a sample counts nothing, or is nowhere: it goes";
	if (sample->n_location_id > DEPTH_LIMIT)
		return "a sample has more callers than are kept";
	for (size_t i = 0; i < sample->n_location_id && !broken; i++)
		broken = find_location(profile, sample->location_id[i]);
	return broken;
}

static const char *check(const Pprof__Profile *profile, int64_t from, int64_t until)
{
	const char *broken = NULL;

	if (!profile->n_string_table || *profile->string_table[0])
		return "its first text is not the empty one";
	if (profile->time_nanos / NS_PER_S < from || profile->time_nanos / NS_PER_S > until)
		return "it was not begun when the request says";
	if (!profile->n_sample || profile->n_sample > SAMPLES_LIMIT)
		return "it has no samples, or more than are taken";
	broken = check_types(profile);
	for (size_t i = 0; i < profile->n_location && !broken; i++)
		broken = check_location(profile, profile->location[i]);
	for (size_t i = 0; i < profile->n_sample && !broken; i++)
		broken = check_sample(profile, profile->sample[i]);
	return broken;
}

const char *pprof_rules_broken(const void *bytes, size_t size, int64_t from, int64_t until)
{
	const char *broken = "it is no gzipped pprof, or one of more than 4 MiB";
	uint8_t *unpacked = malloc(SIZE_LIMIT);
	size_t unpacked_size = unpacked ? unpack_gzip(bytes, size, unpacked) : 0;
	Pprof__Profile *profile =
		unpacked_size ? pprof__profile__unpack(NULL, unpacked_size, unpacked) : NULL;

	if (profile)
		broken = check(profile, from, until);
	pprof__profile__free_unpacked(profile, NULL);
	free(unpacked);
	return broken;
}
