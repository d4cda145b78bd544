/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/rtc.h"

#include <stddef.h>

enum rtc_register {
	RTC_SECONDS = 0x00,
	RTC_MINUTES = 0x02,
	RTC_HOURS = 0x04,
	RTC_DAY_OF_WEEK = 0x06,
	RTC_DAY_OF_MONTH = 0x07,
	RTC_MONTH = 0x08,
	RTC_YEAR = 0x09,
	RTC_A = 0x0a,
	RTC_B = 0x0b,
	RTC_C = 0x0c,
	RTC_D = 0x0d,
	RTC_CENTURY = 0x32, /* where PCs and ACPI's FADT have it */
};

#define RTC_A_UIP    0x80
#define RTC_A_32KHZ  0x26 /* 32.768 kHz time base, 1024 Hz periodic rate */
#define RTC_B_24H    0x02
#define RTC_B_BINARY 0x04
#define RTC_D_VALID  0x80
#define HOUR_PM      0x80

static time_t host_time(void)
{
	return time(NULL);
}

void rtc_init(struct rtc *rtc, time_t (*now)(void))
{
	*rtc = (struct rtc){ .now = now ? now : host_time };
	pthread_mutex_init(&rtc->lock, NULL);
	rtc->ram[RTC_A] = RTC_A_32KHZ;
	rtc->ram[RTC_B] = RTC_B_24H;
	rtc->latched = rtc->now();
}

void rtc_destroy(struct rtc *rtc)
{
	pthread_mutex_destroy(&rtc->lock);
}

static uint8_t encode(const struct rtc *rtc, int value)
{
	if (rtc->ram[RTC_B] & RTC_B_BINARY)
		return (uint8_t)value;
	return (uint8_t)((value / 10) << 4 | value % 10);
}

static uint8_t encode_hour(const struct rtc *rtc, int hour)
{
	if (rtc->ram[RTC_B] & RTC_B_24H)
		return encode(rtc, hour);
	return encode(rtc, (hour + 11) % 12 + 1) | (hour >= 12 ? HOUR_PM : 0);
}

/* Drivers read register after register and rely on UIP for consistency. So a read of the seconds
 * latches the time for the other registers, as long as they can belong to the same sequence. */
static void latch(struct rtc *rtc, uint8_t index)
{
	time_t now = rtc->now();

	if (index == RTC_SECONDS || now > rtc->latched + 1 || now < rtc->latched)
		rtc->latched = now;
}

static uint8_t read_time(struct rtc *rtc, uint8_t index)
{
	struct tm time;

	latch(rtc, index);
	gmtime_r(&rtc->latched, &time);
	switch (index) {
	case RTC_SECONDS:
		return encode(rtc, time.tm_sec);
	case RTC_MINUTES:
		return encode(rtc, time.tm_min);
	case RTC_HOURS:
		return encode_hour(rtc, time.tm_hour);
	case RTC_DAY_OF_WEEK:
		return encode(rtc, time.tm_wday + 1);
	case RTC_DAY_OF_MONTH:
		return encode(rtc, time.tm_mday);
	case RTC_MONTH:
		return encode(rtc, time.tm_mon + 1);
	case RTC_YEAR:
		return encode(rtc, time.tm_year % 100);
	default:
		return encode(rtc, time.tm_year / 100 + 19);
	}
}

static uint8_t read_register(struct rtc *rtc, uint8_t index)
{
	switch (index) {
	case RTC_SECONDS:
	case RTC_MINUTES:
	case RTC_HOURS:
	case RTC_DAY_OF_WEEK ... RTC_YEAR:
	case RTC_CENTURY:
		return read_time(rtc, index);
	case RTC_C:
		return 0;
	case RTC_D:
		return RTC_D_VALID;
	default:
		return rtc->ram[index];
	}
}

static void access_byte(struct rtc *rtc, bool data_port, bool write, uint8_t *value)
{
	if (write && !data_port)
		rtc->index = *value % RTC_RAM_SIZE;
	else if (write)
		rtc->ram[rtc->index] = rtc->index == RTC_A ? *value & ~RTC_A_UIP : *value;
	else if (data_port)
		*value = read_register(rtc, rtc->index);
}

static void rtc_access(void *context, uint64_t offset, bool write, void *data, unsigned int size)
{
	struct rtc *rtc = context;

	pthread_mutex_lock(&rtc->lock);
	for (unsigned int i = 0; i < size; i++)
		access_byte(rtc, offset + i, write, (uint8_t *)data + i);
	pthread_mutex_unlock(&rtc->lock);
}

int rtc_add(struct rtc *rtc, struct bus *bus)
{
	return bus_add(bus, BUS_PORT, RTC_INDEX_PORT, 2, rtc_access, rtc);
}
