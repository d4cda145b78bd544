/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/module_lookup.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/unit/shim/test.h"

static int add(struct address_ranges *set, uint64_t start, uint64_t end)
{
	return address_ranges_add(set, (struct address_range){ start, end });
}

static bool overlap(const struct address_ranges *set, uint64_t start, uint64_t end)
{
	return address_ranges_overlap(set, (struct address_range){ start, end });
}

TEST(address_ranges, that_touch_are_one)
{
	struct address_ranges set = { 0 };

	CHECK(!overlap(&set, 0, UINT64_MAX));
	CHECK_EQUAL(add(&set, 30, 40), 0);
	CHECK_EQUAL(add(&set, 10, 20), 0);
	CHECK_EQUAL(set.count, 2);
	CHECK(overlap(&set, 19, 20));
	CHECK(!overlap(&set, 20, 30));
	CHECK(overlap(&set, 20, 31));
	CHECK(!overlap(&set, 40, 50));
	CHECK_EQUAL(add(&set, 20, 30), 0);
	CHECK_EQUAL(set.count, 1);
	CHECK(overlap(&set, 20, 30));
	CHECK_EQUAL(add(&set, 12, 14), 0);
	CHECK_EQUAL(set.ranges[0].start, 10);
	CHECK_EQUAL(set.ranges[0].end, 40);
	address_ranges_free(&set);
}

/* Against one mark for each address. */
TEST(address_ranges, are_what_was_added)
{
	struct address_ranges set = { 0 };
	bool marks[200] = { false };

	srand(1);
	for (int i = 0; i < 60; i++) {
		unsigned int start = (unsigned int)rand() % 190,
			     end = start + 1 + (unsigned int)rand() % 5;

		CHECK_EQUAL(add(&set, start, end), 0);
		for (unsigned int at = start; at < end; at++)
			marks[at] = true;
		for (unsigned int at = 0; at < 200; at++)
			CHECK_EQUAL(overlap(&set, at, at + 1), marks[at]);
		for (size_t j = 1; j < set.count; j++)
			CHECK(set.ranges[j - 1].end < set.ranges[j].start);
	}
	address_ranges_free(&set);
}

TEST(address_ranges, have_a_limit)
{
	struct address_ranges set = { 0 };

	for (uint64_t i = 0; i < ADDRESS_RANGES_MAX; i++)
		CHECK_EQUAL(add(&set, 3 * i, 3 * i + 1), 0);
	CHECK_EQUAL(add(&set, 3 * ADDRESS_RANGES_MAX, 3 * ADDRESS_RANGES_MAX + 1), -ENOSPC);
	CHECK_EQUAL(add(&set, 1, 2), 0);
	CHECK_EQUAL(set.count, ADDRESS_RANGES_MAX);
	address_ranges_free(&set);
}
