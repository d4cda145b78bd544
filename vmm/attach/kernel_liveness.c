/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/kernel_liveness.h"

#include "shared/clock_ns.h"

#define HZ_MAX 1000ull /* CONFIG_HZ */

/* Memory is read some time behind the sample: when samples are drained. */
static bool is_advance(const struct kernel_pulse *pulse, uint64_t time, uint64_t ticks)
{
	uint64_t elapsed = (time > pulse->time ? time - pulse->time : 0) + KERNEL_PULSE_LATE;

	return ticks > pulse->ticks && (ticks - pulse->ticks) / HZ_MAX <= elapsed / NS_PER_S;
}

/* Any other change was made by somebody who writes where that kernel had its time. */
static void follow(struct kernel_pulse *pulse, uint64_t time, uint64_t ticks)
{
	if (!pulse->known)
		*pulse = (struct kernel_pulse){ .known = true, .ticks = ticks, .time = time };
	else if (is_advance(pulse, time, ticks))
		*pulse = (struct kernel_pulse){
			.known = true, .beats = true, .ticks = ticks, .time = time
		};
	else if (ticks != pulse->ticks) {
		pulse->ticks = ticks;
		pulse->beats = false;
	}
}

bool kernel_pulse_update(struct kernel_pulse *pulse, uint64_t time, uint64_t ticks,
			 bool kernel_mode, uint64_t rip)
{
	follow(pulse, time, ticks);
	pulse->foreign |= kernel_mode && !(rip >> 63);
	/* vCPUs tell their samples one after the other: some are older. */
	return !pulse->foreign || time < pulse->time || time - pulse->time <= KERNEL_PULSE_LIMIT;
}

bool kernel_pulse_is_recent(const struct kernel_pulse *pulse, uint64_t time)
{
	return pulse->beats && !pulse->foreign &&
	       (time < pulse->time || time - pulse->time <= KERNEL_PULSE_RECENT);
}

/* A CPU that was off, a machine that was suspended: its kernel goes on, and so does its time. */
static bool is_back(const struct kernel_clock *clock, uint64_t place, uint64_t beat)
{
	if (place == clock->place)
		return beat > clock->left;
	return place && beat > clock->left + KERNEL_CLOCK_MOVED;
}

bool kernel_clock_update(struct kernel_clock *clock, uint64_t place, uint64_t time, uint64_t beat)
{
	if (!clock->place) {
		clock->place = beat ? place : 0;
		return true;
	}
	if (!clock->left && place != clock->place)
		clock->left = time;
	if (clock->left && is_back(clock, place, beat))
		*clock = (struct kernel_clock){ .place = place };
	return !clock->left;
}
