/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/unit/shim/test.h"
#include "vmm/kvm/memory.h"

TEST(memory, lies_around_the_hole)
{
	struct memory memory;

	REQUIRE_EQUAL(memory_create(&memory, 5ull << 30), 0);
	CHECK_EQUAL(memory.region_count, 2);
	CHECK_EQUAL(memory.regions[0].size, MEMORY_LOW_END);
	CHECK_EQUAL(memory.regions[1].gpa, MEMORY_HIGH_START);
	CHECK_EQUAL(memory.regions[1].size, (5ull << 30) - MEMORY_LOW_END);
	CHECK(memory_pointer(&memory, MEMORY_LOW_END - 8, 8));
	CHECK(!memory_pointer(&memory, MEMORY_LOW_END - 8, 9));
	CHECK(!memory_pointer(&memory, MEMORY_LOW_END, 1));
	CHECK(memory_pointer(&memory, MEMORY_HIGH_START, 1));
	CHECK(!memory_pointer(&memory, MEMORY_HIGH_START + memory.regions[1].size, 1));
	CHECK(!memory_pointer(&memory, UINT64_MAX, 2));
	CHECK(!memory_pointer(&memory, 16, UINT64_MAX));
	memory_destroy(&memory);
}

TEST(memory, copies_inside_only)
{
	struct memory memory;
	uint64_t value = 0x1234;

	REQUIRE_EQUAL(memory_create(&memory, 1 << 20), 0);
	CHECK_EQUAL(memory_write(&memory, (1 << 20) - 8, &value, 8), 0);
	CHECK_EQUAL(memory_write(&memory, (1 << 20) - 7, &value, 8), -EFAULT);
	value = 0;
	CHECK_EQUAL(memory_read(&memory, (1 << 20) - 8, &value, 8), 0);
	CHECK_EQUAL(value, 0x1234);
	memory_destroy(&memory);
}

TEST(memory, refuses_odd_sizes)
{
	struct memory memory;

	CHECK_EQUAL(memory_create(&memory, 4096), -EINVAL);
	CHECK_EQUAL(memory_create(&memory, (1 << 20) + 1), -EINVAL);
	CHECK_EQUAL(memory_create(&memory, UINT64_MAX & ~0xfffull), -ENOMEM);
}
