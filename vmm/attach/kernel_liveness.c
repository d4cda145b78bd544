/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/kernel_liveness.h"

#include "shared/clock_ns.h"

#define HZ_MAX 1000ull /* CONFIG_HZ */

/* Memory is read when samples are drained, some time after the sample. */
static bool is_advance(const struct kernel_pulse *pulse, uint64_t time, uint64_t ticks)
{
	uint64_t elapsed = (time > pulse->time ? time - pulse->time : 0) + KERNEL_PULSE_LATE;

	return ticks > pulse->ticks && (ticks - pulse->ticks) / HZ_MAX <= elapsed / NS_PER_S;
}

/* Any other change was made by something else that writes where the kernel had its time. */
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
	/* Samples of several vCPUs are not in order of time. */
	return !pulse->foreign || time < pulse->time || time - pulse->time <= KERNEL_PULSE_LIMIT;
}

bool kernel_pulse_is_recent(const struct kernel_pulse *pulse, uint64_t time)
{
	return pulse->beats && !pulse->foreign &&
	       (time < pulse->time || time - pulse->time <= KERNEL_PULSE_RECENT);
}

/* After CPU hot-plug or suspend, the kernel continues, and so does its time. */
static bool is_back(const struct kernel_clock *clock, uint64_t address, uint64_t beat)
{
	if (address == clock->address)
		return beat > clock->left;
	return address && beat > clock->left + KERNEL_CLOCK_MOVED;
}

bool kernel_clock_update(struct kernel_clock *clock, uint64_t address, uint64_t time, uint64_t beat)
{
	if (!clock->address) {
		clock->address = beat ? address : 0;
		return true;
	}
	if (!clock->left && address != clock->address)
		clock->left = time;
	if (clock->left && is_back(clock, address, beat))
		*clock = (struct kernel_clock){ .address = address };
	return !clock->left;
}
