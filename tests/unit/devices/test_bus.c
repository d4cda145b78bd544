/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/unit/shim/test.h"
#include "vmm/devices/bus.h"

struct access {
	uint64_t offset;
	bool write;
	unsigned int size, count;
};

static void record(void *device, uint64_t offset, bool write, void *data, unsigned int size)
{
	struct access *access = device;

	access->offset = offset;
	access->write = write;
	access->size = size;
	access->count++;
	if (!write)
		memset(data, 0x5a, size);
}

static int add(struct bus *bus, enum bus_space space, uint64_t start, uint64_t size,
	       struct access *access)
{
	return bus_add(bus, space, start, size, record, access);
}

TEST(bus, gives_accesses_to_the_owner)
{
	struct bus bus = { 0 };
	struct access port = { 0 }, mmio = { 0 };
	uint32_t value = 0;

	REQUIRE_EQUAL(add(&bus, BUS_PORT, 0x60, 4, &port), 0);
	REQUIRE_EQUAL(add(&bus, BUS_MMIO, 0x60, 4, &mmio), 0);
	CHECK(bus_dispatch(&bus, BUS_PORT, 0x62, false, &value, 2));
	CHECK_EQUAL(value & 0xffff, 0x5a5a);
	CHECK_EQUAL(port.offset, 2);
	CHECK_EQUAL(port.size, 2);
	CHECK(!port.write);
	CHECK_EQUAL(mmio.count, 0);
	CHECK(bus_dispatch(&bus, BUS_MMIO, 0x60, true, &value, 4));
	CHECK(mmio.write);
}

/* An access that only starts in a range has no owner: no device may get an offset beyond its
 * range. */
TEST(bus, answers_as_qemu_does_without_a_device)
{
	struct bus bus = { 0 };
	struct access access = { 0 };
	uint32_t value = 0;

	REQUIRE_EQUAL(add(&bus, BUS_PORT, 0x60, 2, &access), 0);
	CHECK(!bus_dispatch(&bus, BUS_PORT, 0xcf8, false, &value, 4));
	CHECK_EQUAL(value, 0xffffffff);
	CHECK(!bus_dispatch(&bus, BUS_PORT, 0x61, false, &value, 4));
	CHECK(!bus_dispatch(&bus, BUS_PORT, 0x5f, true, &value, 2));
	CHECK(!bus_dispatch(&bus, BUS_MMIO, UINT64_MAX, false, &value, 4));
	CHECK_EQUAL(value, 0);
	CHECK_EQUAL(access.count, 0);
}

TEST(bus, refuses_overlaps_and_nonsense)
{
	struct bus bus = { 0 };
	struct access access = { 0 };

	REQUIRE_EQUAL(add(&bus, BUS_MMIO, 0x1000, 0x1000, &access), 0);
	CHECK_EQUAL(add(&bus, BUS_MMIO, 0x1fff, 1, &access), -EEXIST);
	CHECK_EQUAL(add(&bus, BUS_MMIO, 0, UINT64_MAX, &access), -EEXIST);
	CHECK_EQUAL(add(&bus, BUS_MMIO, 0x2000, 1, &access), 0);
	CHECK_EQUAL(add(&bus, BUS_MMIO, UINT64_MAX - 1, 2, &access), 0);
	CHECK_EQUAL(add(&bus, BUS_MMIO, UINT64_MAX - 1, 3, &access), -EINVAL);
	CHECK_EQUAL(add(&bus, BUS_MMIO, 0x5000, 0, &access), -EINVAL);
}

TEST(bus, says_when_it_is_full)
{
	struct bus bus = { 0 };
	struct access access = { 0 };

	for (uint64_t i = 0; i < BUS_RANGES_MAX; i++)
		REQUIRE_EQUAL(add(&bus, BUS_PORT, i, 1, &access), 0);
	CHECK_EQUAL(add(&bus, BUS_PORT, BUS_RANGES_MAX, 1, &access), -ENOSPC);
}
