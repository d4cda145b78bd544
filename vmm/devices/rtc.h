/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MC146818 real-time clock at ports 0x70 and 0x71, as Linux uses it
 * (drivers/rtc/rtc-mc146818-lib.c, rtc-cmos.c): the host's time of day in UTC, never in an update
 * (UIP is 0), RAM and time valid.
 *
 * There are no interrupts (alarm, periodic, update ended): enable bits read back as written, flags
 * stay 0, and the line is never raised. Writes to the time are accepted and ignored.
 */
#ifndef KVMSCOPE_DEVICES_RTC_H
#define KVMSCOPE_DEVICES_RTC_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "vmm/devices/bus.h"

#define RTC_INDEX_PORT 0x70
#define RTC_RAM_SIZE   128

struct rtc {
	pthread_mutex_t lock;
	uint8_t index; /* of the register at port 0x71; the NMI mask in bit 7 is dropped */
	uint8_t ram[RTC_RAM_SIZE];
	time_t latched;      /* the time shown by the registers, see latch() in rtc.c */
	time_t (*now)(void); /* host time in seconds, UTC */
};

/* NOW: source of the time for tests; NULL: time() of the host. */
void rtc_init(struct rtc *rtc, time_t (*now)(void));
void rtc_destroy(struct rtc *rtc);

/* Adds ports 0x70 and 0x71 to BUS; RTC must live as long. The errors of bus_add(). */
int rtc_add(struct rtc *rtc, struct bus *bus);

#endif
