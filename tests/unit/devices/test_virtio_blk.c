/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/virtio_driver.h"
#include "vmm/devices/virtio_blk.h"

#define SECTORS 64

/* Addresses of a request's parts. */
#define HEADER DRIVER_BUFFERS
#define STATUS (DRIVER_BUFFERS + 0x100)
#define DATA   (DRIVER_BUFFERS + 0x1000)

struct fixture {
	struct driver driver;
	char path[64];
	int image; /* our own descriptor */
};

static bool make_image(struct fixture *fixture)
{
	uint8_t sector[512];

	strcpy(fixture->path, "/tmp/kvmscope-blk-XXXXXX");
	fixture->image = mkstemp(fixture->path);
	for (unsigned int i = 0; i < SECTORS; i++) {
		memset(sector, (int)i, sizeof(sector));
		if (pwrite(fixture->image, sector, sizeof(sector), i * 512) != sizeof(sector))
			return false;
	}
	return pwrite(fixture->image, "tail", 4, SECTORS * 512) == 4; /* not a whole sector */
}

static int create(struct fixture *fixture, bool read_only, struct virtio_device **device)
{
	struct virtio_blk_options options = { .path = fixture->path,
					      .read_only = read_only,
					      .id = "disk-of-twenty-bytes-and-more" };

	return virtio_blk_create(device, &options, &fixture->driver.memory, fixture->driver.loop,
				 driver_line(&fixture->driver));
}

static bool setup(struct fixture *fixture, bool read_only)
{
	struct virtio_device *device;

	return make_image(fixture) && driver_init(&fixture->driver) &&
	       !create(fixture, read_only, &device) && driver_attach(&fixture->driver, device) &&
	       driver_start(&fixture->driver, 1);
}

static void teardown(struct fixture *fixture)
{
	driver_end(&fixture->driver);
	close(fixture->image);
	unlink(fixture->path);
}

/* A request of three descriptors; DATA_FLAGS is VRING_DESC_F_WRITE for data that the device
 * writes. Returns the status, or -1. */
static int request(struct fixture *fixture, uint32_t type, uint64_t sector, uint32_t size,
		   uint16_t data_flags, uint32_t *written)
{
	struct driver *driver = &fixture->driver;
	struct virtio_blk_outhdr *header = driver_memory(driver, HEADER);
	uint8_t *status = driver_memory(driver, STATUS);
	struct vring_used_elem used;

	*header = (struct virtio_blk_outhdr){ .type = type, .sector = sector };
	*status = 0xff;
	driver_describe(driver, 0, 0, HEADER, sizeof(*header), VRING_DESC_F_NEXT, 1);
	driver_describe(driver, 0, 1, DATA, size, VRING_DESC_F_NEXT | data_flags, 2);
	driver_describe(driver, 0, 2, STATUS, 1, VRING_DESC_F_WRITE, 0);
	driver_submit(driver, 0, 0);
	if (!driver_wait_used(driver, 0, &used))
		return -1;
	if (written)
		*written = used.len;
	return *status;
}

#define IN  VRING_DESC_F_WRITE
#define OUT 0

TEST(virtio_blk, shows_its_size)
{
	struct fixture fixture;

	REQUIRE(setup(&fixture, false));
	CHECK_EQUAL(driver_read(&fixture.driver, VIRTIO_MMIO_CONFIG), SECTORS);
	CHECK_EQUAL(driver_read(&fixture.driver, VIRTIO_MMIO_CONFIG + 4), 0);
	CHECK_EQUAL(driver_read(&fixture.driver, VIRTIO_MMIO_CONFIG + 12),
		    VIRTIO_QUEUE_SIZE_MAX - 2);
	CHECK_EQUAL(driver_read(&fixture.driver, VIRTIO_MMIO_CONFIG + 0xfc), 0);
	CHECK(!virtio_device_negotiated(fixture.driver.device, VIRTIO_BLK_F_RO));
	teardown(&fixture);
}

TEST(virtio_blk, reads_and_writes)
{
	struct fixture fixture;
	uint8_t *data, sector[512];
	uint32_t written;

	REQUIRE(setup(&fixture, false));
	data = driver_memory(&fixture.driver, DATA);
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_IN, 3, 1024, IN, &written), VIRTIO_BLK_S_OK);
	CHECK_EQUAL(written, 1025);
	CHECK_EQUAL(data[0], 3);
	CHECK_EQUAL(data[1023], 4);
	memset(data, 0xab, 512);
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_OUT, SECTORS - 1, 512, OUT, &written),
		    VIRTIO_BLK_S_OK);
	CHECK_EQUAL(written, 1);
	CHECK_EQUAL(pread(fixture.image, sector, 512, (SECTORS - 1) * 512), 512);
	CHECK(!memcmp(sector, data, 512));
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_FLUSH, 0, 0, OUT, NULL), VIRTIO_BLK_S_OK);
	teardown(&fixture);
}

/* Requests may be split into descriptors anywhere (section 2.7.4). */
TEST(virtio_blk, takes_any_framing)
{
	struct fixture fixture;
	struct driver *driver = &fixture.driver;
	struct vring_used_elem used;
	uint8_t *data;

	REQUIRE(setup(&fixture, false));
	*(struct virtio_blk_outhdr *)driver_memory(driver, HEADER) =
		(struct virtio_blk_outhdr){ .type = VIRTIO_BLK_T_IN, .sector = 9 };
	driver_describe(driver, 0, 0, HEADER, 5, VRING_DESC_F_NEXT, 1);
	driver_describe(driver, 0, 1, HEADER + 5, 11, VRING_DESC_F_NEXT, 2);
	driver_describe(driver, 0, 2, DATA, 100, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 3);
	driver_describe(driver, 0, 3, DATA + 100, 413, VRING_DESC_F_WRITE,
			0); /* including the status */
	driver_submit(driver, 0, 0);
	REQUIRE(driver_wait_used(driver, 0, &used));
	data = driver_memory(driver, DATA);
	CHECK_EQUAL(data[0], 9);
	CHECK_EQUAL(data[511], 9);
	CHECK_EQUAL(data[512], VIRTIO_BLK_S_OK);
	teardown(&fixture);
}

TEST(virtio_blk, refuses_what_is_outside_of_the_image)
{
	struct fixture fixture;
	static const struct {
		uint64_t sector;
		uint32_t size;
	} bad[] = { { SECTORS, 512 },    { SECTORS - 1, 1024 },
		    { UINT64_MAX, 512 }, { UINT64_MAX / 512, 512 },
		    { 0, 511 },          { 1ull << 55, 512 } };

	REQUIRE(setup(&fixture, false));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t *data = driver_memory(&fixture.driver, DATA);

		data[0] = 0x77;
		CHECK_EQUAL(
			request(&fixture, VIRTIO_BLK_T_OUT, bad[i].sector, bad[i].size, OUT, NULL),
			VIRTIO_BLK_S_IOERR);
		CHECK_EQUAL(
			request(&fixture, VIRTIO_BLK_T_IN, bad[i].sector, bad[i].size, IN, NULL),
			VIRTIO_BLK_S_IOERR);
		CHECK_EQUAL(data[0], 0); /* reported as written, so it must be */
	}
	CHECK_EQUAL(lseek(fixture.image, 0, SEEK_END), SECTORS * 512 + 4);
	CHECK_EQUAL(virtio_device_faults(fixture.driver.device), 0);
	teardown(&fixture);
}

TEST(virtio_blk, fails_reads_of_an_image_that_shrinks)
{
	struct fixture fixture;

	REQUIRE(setup(&fixture, false));
	REQUIRE_EQUAL(ftruncate(fixture.image, 512), 0);
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_IN, 0, 512, IN, NULL), VIRTIO_BLK_S_OK);
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_IN, 5, 512, IN, NULL), VIRTIO_BLK_S_IOERR);
	teardown(&fixture);
}

TEST(virtio_blk, protects_a_read_only_image)
{
	struct fixture fixture;
	uint8_t byte;

	REQUIRE(setup(&fixture, true));
	CHECK(virtio_device_negotiated(fixture.driver.device, VIRTIO_BLK_F_RO));
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_OUT, 7, 512, OUT, NULL), VIRTIO_BLK_S_IOERR);
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_IN, 7, 512, IN, NULL), VIRTIO_BLK_S_OK);
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_FLUSH, 0, 0, OUT, NULL), VIRTIO_BLK_S_OK);
	CHECK_EQUAL(pread(fixture.image, &byte, 1, 7 * 512), 1);
	CHECK_EQUAL(byte, 7);
	teardown(&fixture);
}

TEST(virtio_blk, gives_its_id_and_refuses_the_unknown)
{
	struct fixture fixture;

	REQUIRE(setup(&fixture, false));
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_GET_ID, 0, 20, IN, NULL), VIRTIO_BLK_S_OK);
	CHECK(!memcmp(driver_memory(&fixture.driver, DATA), "disk-of-twenty-bytes", 20));
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_GET_ID, 0, 19, IN, NULL), VIRTIO_BLK_S_IOERR);
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_DISCARD, 0, 16, OUT, NULL), VIRTIO_BLK_S_UNSUPP);
	CHECK_EQUAL(request(&fixture, UINT32_MAX, 0, 16, OUT, NULL), VIRTIO_BLK_S_UNSUPP);
	teardown(&fixture);
}

TEST(virtio_blk, needs_header_and_status)
{
	struct fixture fixture;
	struct driver *driver = &fixture.driver;

	REQUIRE(setup(&fixture, false));
	driver_describe(driver, 0, 0, HEADER, 16, 0, 0);
	driver_submit(driver, 0, 0);
	CHECK(driver_wait_needs_reset(driver));
	REQUIRE(driver_start(driver, 1));
	driver_describe(driver, 0, 0, HEADER, 15, VRING_DESC_F_NEXT, 1);
	driver_describe(driver, 0, 1, STATUS, 1, VRING_DESC_F_WRITE, 0);
	driver_submit(driver, 0, 0);
	CHECK(driver_wait_needs_reset(driver));
	CHECK_EQUAL(virtio_device_faults(driver->device), 2);
	REQUIRE(driver_start(driver, 1));
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_IN, 0, 512, IN, NULL), VIRTIO_BLK_S_OK);
	teardown(&fixture);
}

/* More chains than are handled in one go, offered at once. */
TEST(virtio_blk, serves_a_full_queue)
{
	struct fixture fixture;
	struct driver *driver = &fixture.driver;
	struct vring_used_elem used;

	REQUIRE(setup(&fixture, false));
	for (uint16_t i = 0; i + 2 < DRIVER_QUEUE_SIZE; i += 3) {
		uint64_t base = DRIVER_BUFFERS + 0x2000ull * (i / 3 + 1);

		*(struct virtio_blk_outhdr *)driver_memory(driver, base) =
			(struct virtio_blk_outhdr){ .type = VIRTIO_BLK_T_IN, .sector = i };
		driver_describe(driver, 0, i, base, 16, VRING_DESC_F_NEXT, i + 1);
		driver_describe(driver, 0, i + 1, base + 512, 512,
				VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, i + 2);
		driver_describe(driver, 0, i + 2, base + 16, 1, VRING_DESC_F_WRITE, 0);
		driver_offer(driver, 0, i);
	}
	driver_write(driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	for (uint16_t i = 0; i + 2 < DRIVER_QUEUE_SIZE; i += 3) {
		REQUIRE(driver_wait_used(driver, 0, &used));
		CHECK_EQUAL(used.id, i);
		CHECK_EQUAL(*(uint8_t *)driver_memory(
				    driver, DRIVER_BUFFERS + 0x2000ull * (i / 3 + 1) + 512),
			    i);
	}
	teardown(&fixture);
}

/* A driver without VIRTIO_BLK_F_FLUSH, with version 1 only. */
TEST(virtio_blk, serves_a_driver_without_flush)
{
	struct fixture fixture;

	REQUIRE(setup(&fixture, false));
	REQUIRE(driver_negotiate(&fixture.driver, 1ull << VIRTIO_F_VERSION_1));
	REQUIRE(driver_setup_queue(&fixture.driver, 0));
	driver_go(&fixture.driver);
	CHECK_EQUAL(request(&fixture, VIRTIO_BLK_T_OUT, 1, 512, OUT, NULL), VIRTIO_BLK_S_OK);
	teardown(&fixture);
}

TEST(virtio_blk, explains_what_is_wrong_with_an_image)
{
	struct fixture fixture;
	struct virtio_device *device, *second;

	REQUIRE(make_image(&fixture));
	REQUIRE(driver_init(&fixture.driver));
	REQUIRE_EQUAL(create(&fixture, false, &device), 0);
	CHECK_EQUAL(create(&fixture, false, &second), -EBUSY);
	CHECK_EQUAL(create(&fixture, true, &second), -EBUSY);
	virtio_device_destroy(device);
	REQUIRE_EQUAL(create(&fixture, true, &device), 0);
	CHECK_EQUAL(create(&fixture, true, &second), 0);
	virtio_device_destroy(second);
	virtio_device_destroy(device);
	REQUIRE_EQUAL(ftruncate(fixture.image, 511), 0);
	CHECK_EQUAL(create(&fixture, false, &device), -EINVAL);
	unlink(fixture.path);
	CHECK_EQUAL(create(&fixture, false, &device), -ENOENT);
	CHECK(strstr(error_message(), fixture.path));
	CHECK(!device);
	close(fixture.image);
	driver_end(&fixture.driver);
}
