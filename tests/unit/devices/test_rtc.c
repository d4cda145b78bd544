/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shim/test.h"
#include "vmm/devices/rtc.h"

static time_t fake_time;

static time_t fake_now(void)
{
	return fake_time;
}

static uint8_t read_rtc(const struct bus *bus, uint8_t index)
{
	uint8_t value;

	bus_dispatch(bus, BUS_PORT, 0x70, true, &index, 1);
	bus_dispatch(bus, BUS_PORT, 0x71, false, &value, 1);
	return value;
}

static void write_rtc(const struct bus *bus, uint8_t index, uint8_t value)
{
	bus_dispatch(bus, BUS_PORT, 0x70, true, &index, 1);
	bus_dispatch(bus, BUS_PORT, 0x71, true, &value, 1);
}

struct fixture {
	struct bus bus;
	struct rtc rtc;
};

static void setup(struct fixture *fixture, time_t now)
{
	fixture->bus = (struct bus){ 0 };
	fake_time = now;
	rtc_init(&fixture->rtc, fake_now);
	CHECK_EQUAL(rtc_add(&fixture->rtc, &fixture->bus), 0);
}

/* 2024-02-29 13:59:58 UTC, a Thursday. */
#define LEAP_DAY 1709215198

TEST(rtc, shows_the_time_in_bcd_and_24_hours)
{
	struct fixture fixture;

	setup(&fixture, LEAP_DAY);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x00), 0x58);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x02), 0x59);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x04), 0x13);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x06), 5);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x07), 0x29);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x08), 0x02);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x09), 0x24);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x32), 0x20);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x0a) & 0x80, 0); /* UIP */
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x0b), 0x02);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x0c), 0);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x0d), 0x80);
	rtc_destroy(&fixture.rtc);
}

TEST(rtc, follows_register_b_in_format)
{
	struct fixture fixture;

	setup(&fixture, LEAP_DAY);
	write_rtc(&fixture.bus, 0x0b, 0x06); /* binary */
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x00), 58);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x09), 24);
	write_rtc(&fixture.bus, 0x0b, 0x00); /* BCD, 12 hours */
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x04), 0x81);
	fake_time = LEAP_DAY - 13 * 3600;
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x00), 0x58);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x04), 0x12); /* 0:59 is 12 am */
	rtc_destroy(&fixture.rtc);
}

/* A driver that reads the seconds first must not read the following minute. */
TEST(rtc, does_not_tear_a_reading)
{
	struct fixture fixture;

	setup(&fixture, LEAP_DAY + 1);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x00), 0x59);
	fake_time++;
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x02), 0x59);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x04), 0x13);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x00), 0x00);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x02), 0x00);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x04), 0x14);
	fake_time += 3600;
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x04), 0x15);
	rtc_destroy(&fixture.rtc);
}

TEST(rtc, keeps_its_ram_and_masks_the_index)
{
	struct fixture fixture;

	setup(&fixture, LEAP_DAY);
	write_rtc(&fixture.bus, 0x40, 0xa5);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0xc0), 0xa5); /* bit 7 is the NMI mask */
	write_rtc(&fixture.bus, 0x0a, 0xff);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x0a), 0x7f);
	write_rtc(&fixture.bus, 0x00, 0x11);
	CHECK_EQUAL(read_rtc(&fixture.bus, 0x00), 0x58);
	rtc_destroy(&fixture.rtc);
}
