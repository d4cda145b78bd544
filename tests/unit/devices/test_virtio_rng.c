/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_mmio.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/virtio_driver.h"
#include "vmm/devices/virtio_rng.h"

static bool start_rng(struct driver *driver, uint32_t rate)
{
	struct virtio_device *device;

	return driver_init(driver) &&
	       !virtio_rng_create(&device, rate, &driver->memory, driver->loop,
				  driver_line(driver)) &&
	       driver_attach(driver, device) && driver_start(driver, 1);
}

TEST(virtio_rng, fills_buffers_with_bytes_that_differ)
{
	struct driver driver;
	struct vring_used_elem used;
	uint8_t *bytes;
	unsigned int seen[256] = { 0 }, kinds = 0;

	REQUIRE(start_rng(&driver, 0));
	driver_describe(&driver, 0, 0, DRIVER_BUFFERS, 1000, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT,
			1);
	driver_describe(&driver, 0, 1, DRIVER_BUFFERS + 1000, 24, VRING_DESC_F_WRITE, 0);
	driver_submit(&driver, 0, 0);
	REQUIRE(driver_wait_used(&driver, 0, &used));
	CHECK_EQUAL(used.len, 1024);
	bytes = driver_memory(&driver, DRIVER_BUFFERS);
	for (size_t i = 0; i < 1024; i++)
		kinds += !seen[bytes[i]]++;
	CHECK(kinds > 200); /* 251 on average; 200 is 20 standard deviations away */
	driver_end(&driver);
}

/* Of 100 bytes a second, 10 are available at a time; the next ones after a tenth of a second. */
TEST(virtio_rng, bounds_its_rate)
{
	struct driver driver;
	struct vring_used_elem used;

	REQUIRE(start_rng(&driver, 100));
	driver_describe(&driver, 0, 0, DRIVER_BUFFERS, 4096, VRING_DESC_F_WRITE, 0);
	driver_submit(&driver, 0, 0);
	REQUIRE(driver_wait_used(&driver, 0, &used));
	CHECK_EQUAL(used.len, 10);
	driver_submit(&driver, 0, 0);
	REQUIRE(driver_wait_used(&driver, 0, &used));
	CHECK_EQUAL(used.len, 10);
	driver_end(&driver);
}

TEST(virtio_rng, refuses_a_request_without_room)
{
	struct driver driver;

	REQUIRE(start_rng(&driver, 0));
	driver_describe(&driver, 0, 0, DRIVER_BUFFERS, 16, 0, 0);
	driver_submit(&driver, 0, 0);
	CHECK(driver_wait_needs_reset(&driver));
	driver_end(&driver);
}
