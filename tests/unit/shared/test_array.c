/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/array.h"
#include "tests/unit/shim/test.h"

TEST(array, grows_and_keeps_its_items)
{
	size_t capacity = 0, count = 0;
	uint64_t *items = NULL;

	while (count < 1000) {
		REQUIRE_EQUAL(array_reserve(&items, &capacity, count + 1), 0);
		items[count] = count;
		count++;
	}
	for (size_t i = 0; i < count; i++)
		REQUIRE_EQUAL(items[i], i);
	CHECK(capacity >= count && capacity < 2 * count);
	free(items);
}

TEST(array, is_unchanged_where_no_memory_is_that_large)
{
	size_t capacity = 0;
	uint64_t *items = NULL, *before;

	REQUIRE_EQUAL(array_reserve(&items, &capacity, 3), 0);
	before = items;
	CHECK_EQUAL(array_reserve(&items, &capacity, SIZE_MAX), -ENOMEM);
	CHECK_EQUAL(array_reserve(&items, &capacity, SIZE_MAX / 8), -ENOMEM);
	CHECK(items == before);
	CHECK_EQUAL(capacity, 8);
	free(items);
}
