/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/mapping_index.h"

#include <stdlib.h>

#include "tests/unit/shim/test.h"

#define MAPPINGS 200u
#define PAGES    64u

/* As mapping_index_find() for all mappings before EPOCH, one after the other. */
static uint32_t search(struct profile_mapping *const *mappings, uint32_t epoch, uint64_t address)
{
	while (epoch &&
	       (address < mappings[epoch - 1]->start || address >= mappings[epoch - 1]->end))
		epoch--;
	return epoch;
}

static void check_all(struct profile_mapping *const *mappings, size_t count)
{
	struct mapping_index index;

	REQUIRE_EQUAL(mapping_index_build(&index, mappings, count), 0);
	for (uint32_t epoch = 0; epoch <= count; epoch++)
		for (uint64_t address = 0; address <= PAGES; address++)
			REQUIRE_EQUAL(mapping_index_find(&index, epoch, address),
				      search(mappings, epoch, address));
	CHECK_EQUAL(mapping_index_find(&index, (uint32_t)count, UINT64_MAX), 0);
	mapping_index_free(&index);
}

TEST(mapping_index, finds_what_a_search_finds)
{
	struct profile_mapping all[MAPPINGS], *mappings[MAPPINGS];

	srand(5);
	for (size_t round = 0; round < 20; round++) {
		for (size_t i = 0; i < MAPPINGS; i++) {
			uint64_t start = (uint64_t)rand() % PAGES;

			all[i] = (struct profile_mapping){
				.start = start,
				.end = start + (uint64_t)rand() % (PAGES - start + 1)
			};
			mappings[i] = &all[i];
		}
		check_all(mappings, round < 10 ? round : MAPPINGS);
	}
}

TEST(mapping_index, includes_mappings_to_the_end_of_the_space)
{
	struct profile_mapping all = { .start = 0, .end = UINT64_MAX }, *mappings = &all;
	struct mapping_index index;

	REQUIRE_EQUAL(mapping_index_build(&index, &mappings, 1), 0);
	CHECK_EQUAL(mapping_index_find(&index, 1, UINT64_MAX - 1), 1);
	CHECK_EQUAL(mapping_index_find(&index, 0, 5), 0);
	mapping_index_free(&index);
}

/* Mappings within each other, of which each ends in another range: the number of entries. */
static size_t count_nested(size_t count)
{
	struct profile_mapping *all = calloc(count, sizeof(*all));
	struct profile_mapping **mappings = calloc(count, sizeof(struct profile_mapping *));
	struct mapping_index index;
	size_t entries;

	for (size_t i = 0; i < count; i++) {
		all[i] = (struct profile_mapping){ .start = i, .end = 3 * count - i };
		mappings[i] = &all[i];
	}
	CHECK_EQUAL(mapping_index_build(&index, mappings, count), 0);
	entries = index.first[2 * index.ranges];
	mapping_index_free(&index);
	free(mappings);
	free(all);
	return entries;
}

TEST(mapping_index, twice_the_mappings_are_little_more_than_twice_the_work)
{
	CHECK(count_nested(20000) < 5 * count_nested(10000) / 2);
}
