/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/address_ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The first range that ends at ADDRESS or after it. */
static size_t find(const struct address_ranges *set, uint64_t address)
{
	size_t low = 0, high = set->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->ranges[middle].end < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int insert(struct address_ranges *set, size_t index, struct address_range range)
{
	struct address_range *larger;

	if (set->count == ADDRESS_RANGES_MAX)
		return -ENOSPC;
	larger = reallocarray(set->ranges, set->count + 1, sizeof(*larger));
	if (!larger)
		return -ENOMEM;
	memmove(larger + index + 1, larger + index, (set->count - index) * sizeof(*larger));
	larger[index] = range;
	set->ranges = larger;
	set->count++;
	return 0;
}

/* Replaces the ranges from FIRST up to END by RANGE. */
static void replace(struct address_ranges *set, size_t first, size_t end,
		    struct address_range range)
{
	set->ranges[first] = range;
	memmove(set->ranges + first + 1, set->ranges + end, (set->count - end) * sizeof(range));
	set->count -= end - first - 1;
}

int address_ranges_add(struct address_ranges *set, struct address_range range)
{
	size_t first = find(set, range.start), end = first;

	while (end < set->count && set->ranges[end].start <= range.end)
		end++;
	if (end == first)
		return insert(set, first, range);
	if (set->ranges[first].start < range.start)
		range.start = set->ranges[first].start;
	if (set->ranges[end - 1].end > range.end)
		range.end = set->ranges[end - 1].end;
	replace(set, first, end, range);
	return 0;
}

bool address_ranges_overlap(const struct address_ranges *set, struct address_range range)
{
	/* A range that ends where RANGE starts does not overlap it. */
	size_t index = find(set, range.start + 1);

	return index < set->count && set->ranges[index].start < range.end;
}

void address_ranges_free(struct address_ranges *set)
{
	free(set->ranges);
	*set = (struct address_ranges){ 0 };
}
