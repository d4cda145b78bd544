// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/kernel_pulse.h"

bool kernel_pulse_take(struct kernel_pulse *pulse, uint64_t time, uint64_t ticks, bool kernel_mode,
		       uint64_t rip)
{
	if (!pulse->known || pulse->ticks != ticks)
		*pulse = (struct kernel_pulse){ .known = true, .ticks = ticks, .time = time };
	pulse->foreign |= kernel_mode && !(rip >> 63);
	/* vCPUs tell their samples one after the other: some are older. */
	return !pulse->foreign || time < pulse->time || time - pulse->time <= KERNEL_PULSE_LIMIT;
}

bool kernel_pulse_is_felt(const struct kernel_pulse *pulse, uint64_t time)
{
	return pulse->known && !pulse->foreign &&
	       (time < pulse->time || time - pulse->time <= KERNEL_PULSE_FELT);
}
