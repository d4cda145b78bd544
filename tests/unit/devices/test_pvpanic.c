/* SPDX-License-Identifier: Apache-2.0 */
/* Writes of a guest to the port for panic reports. */
#include "tests/unit/shim/test.h"
#include "vmm/devices/port_devices.h"

struct heard {
	int panics, crash_kernels;
};

static void hear(void *context, bool crash_kernel)
{
	struct heard *heard = context;

	heard->panics++;
	heard->crash_kernels += crash_kernel;
}

static void write_port(const struct bus *bus, uint32_t value, unsigned int size)
{
	CHECK(bus_dispatch(bus, BUS_PORT, 0x505, true, &value, size));
}

TEST(pvpanic, lists_supported_events)
{
	struct pvpanic device = { 0 };
	struct bus bus = { 0 };
	uint32_t value = 0xffffffff;

	REQUIRE_EQUAL(pvpanic_add(&device, &bus), 0);
	CHECK(bus_dispatch(&bus, BUS_PORT, 0x505, false, &value, 1));
	CHECK_EQUAL(value, 0xffffff03);
	write_port(&bus, PVPANIC_PANICKED, 1); /* without a handler */
}

TEST(pvpanic, reports_each_panic)
{
	struct heard heard = { 0 };
	struct pvpanic device = { .panic = hear, .context = &heard };
	struct bus bus = { 0 };

	REQUIRE_EQUAL(pvpanic_add(&device, &bus), 0);
	write_port(&bus, 0, 1);
	write_port(&bus, 0xfc, 1); /* bits that were not offered */
	CHECK_EQUAL(heard.panics, 0);
	write_port(&bus, PVPANIC_PANICKED, 1);
	CHECK_EQUAL(heard.panics, 1);
	CHECK_EQUAL(heard.crash_kernels, 0);
	write_port(&bus, PVPANIC_CRASH_LOADED, 1);
	CHECK_EQUAL(heard.panics, 2);
	CHECK_EQUAL(heard.crash_kernels, 1);
}
