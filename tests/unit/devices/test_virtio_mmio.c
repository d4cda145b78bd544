/* SPDX-License-Identifier: Apache-2.0 */
/* The MMIO transport with the entropy device: registers, negotiation, violations, concurrent
 * resets. */
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_mmio.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/virtio_driver.h"
#include "vmm/devices/virtio_rng.h"

static bool start_rng(struct driver *driver, uint32_t rate)
{
	struct virtio_device *device;

	return driver_init(driver) &&
	       !virtio_rng_create(&device, rate, &driver->memory, driver->loop,
				  driver_line(driver)) &&
	       driver_attach(driver, device);
}

TEST(virtio_mmio, identifies_itself)
{
	struct driver driver;

	REQUIRE(start_rng(&driver, 0));
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_MAGIC_VALUE), 0x74726976);
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_VERSION), 2);
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_DEVICE_ID), VIRTIO_ID_RNG);
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_QUEUE_NUM_MAX), 16);
	driver_write(&driver, VIRTIO_MMIO_QUEUE_SEL, 1);
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_QUEUE_NUM_MAX), 0);
	driver_end(&driver);
}

TEST(virtio_mmio, takes_only_words_below_the_configuration)
{
	struct driver driver;
	uint16_t half = 0xffff;
	uint64_t wide = 1;

	REQUIRE(start_rng(&driver, 0));
	CHECK(bus_dispatch(&driver.bus, BUS_MMIO, DRIVER_MMIO + VIRTIO_MMIO_MAGIC_VALUE, false,
			   &half, 2));
	CHECK_EQUAL(half, 0);
	CHECK(bus_dispatch(&driver.bus, BUS_MMIO, DRIVER_MMIO + VIRTIO_MMIO_STATUS, true, &wide,
			   8));
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_STATUS), 0);
	driver_end(&driver);
}

TEST(virtio_mmio, refuses_features_it_has_not_offered)
{
	struct driver driver;

	REQUIRE(start_rng(&driver, 0));
	CHECK(!driver_negotiate(&driver, 0)); /* no version 1 */
	CHECK(!driver_negotiate(&driver,
				1ull << VIRTIO_F_VERSION_1 | 1ull << VIRTIO_F_RING_PACKED));
	CHECK(driver_negotiate(&driver, 1ull << VIRTIO_F_VERSION_1));
	driver_write(&driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	driver_write(&driver, VIRTIO_MMIO_DRIVER_FEATURES, 0); /* too late */
	CHECK(virtio_device_negotiated(driver.device, VIRTIO_F_VERSION_1));
	driver_end(&driver);
}

TEST(virtio_mmio, keeps_the_order_of_the_status_bits)
{
	struct driver driver;

	REQUIRE(start_rng(&driver, 0));
	driver_write(&driver, VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_DRIVER_OK);
	CHECK(!(driver_read(&driver, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_DRIVER_OK));
	CHECK(!driver_setup_queue(&driver, 0)); /* no FEATURES_OK yet */
	CHECK(!driver_needs_reset(&driver));
	REQUIRE(driver_start(&driver, 1));
	driver_write(&driver, VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE);
	CHECK(driver_read(&driver, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_DRIVER_OK);
	driver_write(&driver, VIRTIO_MMIO_STATUS, 0);
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_STATUS), 0);
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_QUEUE_READY), 0);
	driver_end(&driver);
}

TEST(virtio_mmio, needs_reset_for_rings_outside_of_memory)
{
	struct driver driver;

	REQUIRE(start_rng(&driver, 0));
	REQUIRE(driver_negotiate(&driver, 1ull << VIRTIO_F_VERSION_1));
	driver_write(&driver, VIRTIO_MMIO_QUEUE_SEL, 0);
	driver_write(&driver, VIRTIO_MMIO_QUEUE_DESC_HIGH, 0xffffffff);
	CHECK(!driver_setup_queue(&driver, 0));
	CHECK(driver_needs_reset(&driver));
	CHECK_EQUAL(virtio_device_faults(driver.device), 1);
	REQUIRE(driver_start(&driver, 1)); /* resets first */
	CHECK(!driver_needs_reset(&driver));
	driver_end(&driver);
}

TEST(virtio_mmio, holds_a_ready_queue_still)
{
	struct driver driver;
	struct vring_used_elem used;

	REQUIRE(start_rng(&driver, 0));
	REQUIRE(driver_start(&driver, 1));
	driver_write(&driver, VIRTIO_MMIO_QUEUE_NUM, 0);
	driver_write(&driver, VIRTIO_MMIO_QUEUE_DESC_LOW, 0xfffffff0);
	driver_describe(&driver, 0, 0, DRIVER_BUFFERS, 32, VRING_DESC_F_WRITE, 0);
	driver_submit(&driver, 0, 0);
	CHECK(driver_wait_used(&driver, 0, &used));
	driver_end(&driver);
}

TEST(virtio_mmio, raises_and_lowers_its_line)
{
	struct driver driver;
	struct vring_used_elem used;

	REQUIRE(start_rng(&driver, 0));
	REQUIRE(driver_start(&driver, 1));
	driver_describe(&driver, 0, 0, DRIVER_BUFFERS, 32, VRING_DESC_F_WRITE, 0);
	driver_submit(&driver, 0, 0);
	REQUIRE(driver_wait_used(&driver, 0, &used));
	driver_settle(&driver);
	CHECK(atomic_load(&driver.line));
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_VRING);
	driver_write(&driver, VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_CONFIG);
	CHECK(atomic_load(&driver.line));
	driver_write(&driver, VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_VRING);
	CHECK(!atomic_load(&driver.line));
	CHECK_EQUAL(driver_read(&driver, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
	driver_end(&driver);
}

TEST(virtio_mmio, stops_a_hostile_driver_until_it_resets)
{
	struct driver driver;
	struct vring_used_elem used;

	REQUIRE(start_rng(&driver, 0));
	for (uint64_t round = 1; round <= 3; round++) {
		REQUIRE(driver_start(&driver, 1));
		driver_describe(&driver, 0, 0, DRIVER_BUFFERS, 8,
				VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 0);
		driver_describe(&driver, 0, 1, DRIVER_BUFFERS, 8, VRING_DESC_F_WRITE, 0);
		driver_submit(&driver, 0, 0);
		REQUIRE(driver_wait_needs_reset(&driver));
		CHECK_EQUAL(virtio_device_faults(driver.device), round);
		CHECK(driver_read(&driver, VIRTIO_MMIO_INTERRUPT_STATUS) & VIRTIO_MMIO_INT_CONFIG);
		driver_submit(&driver, 0, 1);
		driver_settle(&driver);
		CHECK_EQUAL(driver_used_index(&driver, 0), 0);
		CHECK_EQUAL(virtio_device_faults(driver.device), round);
	}
	REQUIRE(driver_start(&driver, 1));
	CHECK(!atomic_load(&driver.line));
	driver_describe(&driver, 0, 1, DRIVER_BUFFERS, 8, VRING_DESC_F_WRITE, 0);
	driver_submit(&driver, 0, 1);
	CHECK(driver_wait_used(&driver, 0, &used));
	driver_end(&driver);
}

TEST(virtio_mmio, survives_notifications_of_no_queue)
{
	struct driver driver;

	REQUIRE(start_rng(&driver, 0));
	REQUIRE(driver_start(&driver, 1));
	driver_write(&driver, VIRTIO_MMIO_QUEUE_NOTIFY, 1);
	driver_write(&driver, VIRTIO_MMIO_QUEUE_NOTIFY, UINT32_MAX);
	driver_settle(&driver);
	CHECK(!driver_needs_reset(&driver));
	driver_end(&driver);
}

struct hammer {
	struct driver *driver;
	atomic_bool stop;
};

/* What another vCPU does at the same time. */
static void *notify_without_end(void *context)
{
	struct hammer *hammer = context;

	while (!atomic_load(&hammer->stop)) {
		driver_write(hammer->driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
		driver_write(hammer->driver, VIRTIO_MMIO_INTERRUPT_ACK,
			     driver_read(hammer->driver, VIRTIO_MMIO_INTERRUPT_STATUS));
	}
	return NULL;
}

/* After status reads 0 the device must not touch the queue, whose memory has been reused. */
TEST(virtio_mmio, resets_while_notifications_are_in_flight)
{
	struct driver driver;
	struct hammer hammer = { .driver = &driver };
	pthread_t thread;

	REQUIRE(start_rng(&driver, UINT32_MAX));
	REQUIRE_EQUAL(pthread_create(&thread, NULL, notify_without_end, &hammer), 0);
	for (int round = 0; round < 200; round++) {
		uint8_t *buffer = driver_memory(&driver, DRIVER_BUFFERS);

		CHECK(driver_start(&driver, 1));
		driver_describe(&driver, 0, 0, DRIVER_BUFFERS, 4096, VRING_DESC_F_WRITE, 0);
		for (int i = 0; i < DRIVER_QUEUE_SIZE; i++)
			driver_offer(&driver, 0, 0);
		driver_write(&driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
		driver_write(&driver, VIRTIO_MMIO_STATUS, 0);
		memset(buffer, 0, 4096);
		for (size_t i = 0; i < 4096; i++) {
			if (buffer[i])
				FAIL_TEST("the device wrote at %zu after its reset", i);
		}
	}
	atomic_store(&hammer.stop, true);
	pthread_join(thread, NULL);
	CHECK_EQUAL(virtio_device_faults(driver.device), 0);
	driver_end(&driver);
}
