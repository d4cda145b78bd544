// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/drain_interval.h"

#include <stdint.h>

#include "shared/clock_ns.h"

/* ms: with few samples per second less often. */
#define LEAST     20ul
#define MOST      200ul
#define FREQUENCY 1000ul /* Hz, up from which it is done most often */

static uint64_t by_frequency(uint64_t frequency)
{
	if (frequency >= FREQUENCY)
		return LEAST;
	return frequency * MOST <= FREQUENCY * LEAST ? MOST : FREQUENCY * LEAST / frequency;
}

int drain_interval(unsigned int frequency, size_t vcpus, size_t room)
{
	uint64_t interval = by_frequency(frequency), samples = (uint64_t)frequency * vcpus, half;

	if (!room || !samples)
		return (int)interval;
	half = (uint64_t)room * MS_PER_S / samples / 2;
	if (half < interval)
		interval = half;
	return interval ? (int)interval : 1;
}
