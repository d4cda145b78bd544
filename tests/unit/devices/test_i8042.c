/* SPDX-License-Identifier: Apache-2.0 */
/* How a guest ends: the keyboard controller's reset line, and the debug-exit port. */
#include "tests/unit/shim/test.h"
#include "vmm/devices/port_devices.h"

static void count(void *context)
{
	++*(int *)context;
}

TEST(i8042, has_no_keyboard_and_resets)
{
	int resets = 0;
	struct i8042 device = { .reset = count, .context = &resets };
	struct bus bus = { 0 };
	uint8_t value = 0xff;

	REQUIRE_EQUAL(i8042_add(&device, &bus), 0);
	CHECK(bus_dispatch(&bus, BUS_PORT, 0x64, false, &value, 1));
	CHECK_EQUAL(value, 0);
	CHECK(bus_dispatch(&bus, BUS_PORT, 0x60, false, &value, 1));
	CHECK_EQUAL(value, 0);
	value = 0xfe;
	bus_dispatch(&bus, BUS_PORT, 0x60, true, &value, 1);
	CHECK_EQUAL(resets, 0);
	bus_dispatch(&bus, BUS_PORT, 0x64, true, &value, 1);
	CHECK_EQUAL(resets, 1);
	value = 0xaa; /* self test */
	bus_dispatch(&bus, BUS_PORT, 0x64, true, &value, 1);
	CHECK_EQUAL(resets, 1);
}

static void keep(void *context, uint32_t value)
{
	*(uint32_t *)context = value;
}

TEST(debug_exit, carries_values_of_each_size)
{
	uint32_t exit_value = 0, value = 0xa1b2c3d4;
	struct debug_exit device = { .exit = keep, .context = &exit_value };
	struct bus bus = { 0 };

	REQUIRE_EQUAL(debug_exit_add(&device, &bus), 0);
	bus_dispatch(&bus, BUS_PORT, 0xf4, true, &value, 1);
	CHECK_EQUAL(exit_value, 0xd4);
	bus_dispatch(&bus, BUS_PORT, 0xf4, true, &value, 2);
	CHECK_EQUAL(exit_value, 0xc3d4);
	bus_dispatch(&bus, BUS_PORT, 0xf4, true, &value, 4);
	CHECK_EQUAL(exit_value, 0xa1b2c3d4);
	bus_dispatch(&bus, BUS_PORT, 0xf5, true, &value, 1);
	CHECK_EQUAL(exit_value, 0xa1b2c3d4);
	bus_dispatch(&bus, BUS_PORT, 0xf4, false, &value, 4);
	CHECK_EQUAL(value, 0);
}
