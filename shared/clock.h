/* SPDX-License-Identifier: Apache-2.0 */
/* What a clock of the system says, as one number. */
#ifndef KVMSCOPE_SHARED_CLOCK_H
#define KVMSCOPE_SHARED_CLOCK_H

#include <stdint.h>
#include <time.h>

/*
 * ns by CLOCK, which there is: clock_gettime(2). A system call for those of CPU time alone, as the vDSO has
 * the others. Any thread, in signal handlers too.
 */
static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

#endif
