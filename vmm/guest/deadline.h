/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the time that a stop may take. */
#ifndef KVMSCOPE_GUEST_DEADLINE_H
#define KVMSCOPE_GUEST_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* DEADLINE in ns of CLOCK_MONOTONIC_RAW; 0: there is none. No system call: the vDSO has the clock. */
static inline bool deadline_passed(uint64_t deadline)
{
	struct timespec now;

	if (!deadline)
		return false;
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec >= deadline;
}

#endif
