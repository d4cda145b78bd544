/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/mapping_index.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "shared/array.h"

static int by_value(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static int find_bounds(struct mapping_index *index, struct profile_mapping *const *mappings,
		       size_t count)
{
	size_t distinct = 0;

	index->bounds = reallocarray(NULL, 2 * count, sizeof(index->bounds[0]));
	if (!index->bounds)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		index->bounds[2 * i] = mappings[i]->start;
		index->bounds[2 * i + 1] = mappings[i]->end;
	}
	qsort(index->bounds, 2 * count, sizeof(index->bounds[0]), by_value);
	for (size_t i = 0; i < 2 * count; i++)
		if (!distinct || index->bounds[i] != index->bounds[distinct - 1])
			index->bounds[distinct++] = index->bounds[i];
	index->ranges = distinct - 1;
	return 0;
}

/* The number of bounds up to ADDRESS: the range that begins with the last one, plus 1. */
static size_t bounds_up_to(const struct mapping_index *index, uint64_t address)
{
	return array_partition(index->ranges + 1, i, index->bounds[i] <= address);
}

/*
 * Visits the nodes that together are MAPPING's ranges, at most two per level. Node 1 is the root,
 * nodes from RANGES on are the leaves. With ENTRY, adds it to each, else counts it in the node's
 * successor.
 */
static void cover(struct mapping_index *index, const struct profile_mapping *mapping,
		  const uint32_t *entry)
{
	size_t begin = bounds_up_to(index, mapping->start) - 1 + index->ranges;
	size_t end = bounds_up_to(index, mapping->end) - 1 + index->ranges;

	for (; begin < end; begin /= 2, end /= 2) {
		const size_t nodes[] = { begin & 1 ? begin++ : 0, end & 1 ? --end : 0 };

		for (size_t i = 0; i < 2; i++)
			if (nodes[i] && entry)
				index->entries[index->first[nodes[i]]++] = *entry;
			else if (nodes[i])
				index->first[nodes[i] + 1]++;
	}
}

/* -ENOMEM also if there would be more entries than their type can count. */
static int sum_up(struct mapping_index *index)
{
	for (size_t i = 1; i <= 2 * index->ranges; i++)
		if (__builtin_add_overflow(index->first[i], index->first[i - 1], &index->first[i]))
			return -ENOMEM;
	index->entries = reallocarray(NULL, index->first[2 * index->ranges] + (size_t)1,
				      sizeof(index->entries[0]));
	return index->entries ? 0 : -ENOMEM;
}

static int fill(struct mapping_index *index, struct profile_mapping *const *mappings, size_t count)
{
	index->first = calloc(2 * index->ranges + 1, sizeof(index->first[0]));
	if (!index->first)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		cover(index, mappings[i], NULL);
	if (sum_up(index))
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		cover(index, mappings[i], &i);
	/* Adding moved each node's first entry to its end. */
	for (size_t i = 2 * index->ranges; i > 0; i--)
		index->first[i] = index->first[i - 1];
	index->first[0] = 0;
	return 0;
}

int mapping_index_build(struct mapping_index *index, struct profile_mapping *const *mappings,
			size_t count)
{
	int error;

	*index = (struct mapping_index){ 0 };
	if (!count)
		return 0;
	error = find_bounds(index, mappings, count);
	if (!error)
		error = fill(index, mappings, count);
	if (error)
		mapping_index_free(index);
	return error;
}

void mapping_index_free(struct mapping_index *index)
{
	free(index->bounds);
	free(index->first);
	free(index->entries);
	*index = (struct mapping_index){ 0 };
}

uint32_t mapping_index_find(const struct mapping_index *index, uint32_t epoch, uint64_t address)
{
	size_t range = index->ranges ? bounds_up_to(index, address) : 0;
	uint32_t latest = 0;

	if (!range || range > index->ranges)
		return 0;
	for (size_t node = range - 1 + index->ranges; node; node /= 2) {
		const uint32_t *entries = index->entries + index->first[node];
		size_t count = index->first[node + 1] - index->first[node];
		size_t known = array_partition(count, i, entries[i] < epoch);

		if (known && entries[known - 1] + 1 > latest)
			latest = entries[known - 1] + 1;
	}
	return latest;
}
