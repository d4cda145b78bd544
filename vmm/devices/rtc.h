/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MC146818 real-time clock at ports 0x70 and 0x71, as Linux uses it
 * (drivers/rtc/rtc-mc146818-lib.c, rtc-cmos.c): the time of day of the host
 * in UTC, never in an update (UIP is 0), RAM and time valid.
 *
 * The three interrupts (alarm, periodic, update ended) are not there: their
 * enable bits read back as written, their flags stay 0, the line is never
 * raised. Writing the time is accepted and changes nothing: the host's clock
 * goes on.
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
	uint8_t index; /* of the register behind port 0x71; the NMI mask in bit 7 is not kept */
	uint8_t ram[RTC_RAM_SIZE];
	time_t latched;      /* the time that the registers show, see rtc_access() */
	time_t (*now)(void); /* host time in seconds, UTC */
};

/* NOW is time() of the host unless a test gives another; NULL takes that. */
void rtc_init(struct rtc *rtc, time_t (*now)(void));
void rtc_destroy(struct rtc *rtc);

/* Puts ports 0x70 and 0x71 on BUS; RTC must live as long. The errors of bus_add(). */
int rtc_add(struct rtc *rtc, struct bus *bus);

#endif
