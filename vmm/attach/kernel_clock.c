// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/kernel_clock.h"

/* A CPU that was off, a machine that was suspended: its kernel goes on, and so does its time. */
static bool is_back(const struct kernel_clock *clock, uint64_t place, uint64_t beat)
{
	if (place == clock->place)
		return beat > clock->left;
	return place && beat > clock->left + KERNEL_CLOCK_MOVED;
}

bool kernel_clock_take(struct kernel_clock *clock, uint64_t place, uint64_t time, uint64_t beat)
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
