/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/address_ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The first that ends at ADDRESS or behind it. */
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

/* The ranges from FIRST up to BEHIND become RANGE. */
static void replace(struct address_ranges *set, size_t first, size_t behind,
		    struct address_range range)
{
	set->ranges[first] = range;
	memmove(set->ranges + first + 1, set->ranges + behind,
		(set->count - behind) * sizeof(range));
	set->count -= behind - first - 1;
}

int address_ranges_add(struct address_ranges *set, struct address_range range)
{
	size_t first = find(set, range.start), behind = first;

	while (behind < set->count && set->ranges[behind].start <= range.end)
		behind++;
	if (behind == first)
		return insert(set, first, range);
	if (set->ranges[first].start < range.start)
		range.start = set->ranges[first].start;
	if (set->ranges[behind - 1].end > range.end)
		range.end = set->ranges[behind - 1].end;
	replace(set, first, behind, range);
	return 0;
}

bool address_ranges_overlap(const struct address_ranges *set, struct address_range range)
{
	/* One that ends where RANGE starts touches it only. */
	size_t index = find(set, range.start + 1);

	return index < set->count && set->ranges[index].start < range.end;
}

void address_ranges_free(struct address_ranges *set)
{
	free(set->ranges);
	*set = (struct address_ranges){ 0 };
}
