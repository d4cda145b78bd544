/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks as one number. Any thread, also in signal handlers. */
#ifndef KVMSCOPE_SHARED_CLOCK_NS_H
#define KVMSCOPE_SHARED_CLOCK_NS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define MS_PER_S  UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

/* ns of CLOCK, which must exist (clock_gettime(2)). Only clocks of CPU time need a system call; the
 * vDSO has the others. */
static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

/* The same in whole ms. */
static inline uint64_t clock_ms(clockid_t clock)
{
	return clock_ns(clock) / NS_PER_MS;
}

/* The later of two times. */
static inline uint64_t time_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* TIME less or plus SPAN, limited to 0 and UINT64_MAX. */
static inline uint64_t time_before(uint64_t time, uint64_t span)
{
	return time > span ? time - span : 0;
}

static inline uint64_t time_after(uint64_t time, uint64_t span)
{
	return time < UINT64_MAX - span ? time + span : UINT64_MAX;
}

/* True after DEADLINE, in ns of CLOCK_MONOTONIC_RAW; 0: no deadline. No system call. */
static inline bool deadline_passed(uint64_t deadline)
{
	return deadline && clock_ns(CLOCK_MONOTONIC_RAW) >= deadline;
}

#endif
