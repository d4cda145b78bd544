/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of everything that the agent tells: CLOCK_MONOTONIC_RAW, which nobody sets or slews. Any thread.
 */
#ifndef KVMSCOPE_AGENT_CLOCK_H
#define KVMSCOPE_AGENT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_raw(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* CPU time of this thread, ns: for work that is to rest in proportion to what it cost. */
static inline uint64_t clock_cpu(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* For waiting: milliseconds. */
static inline uint64_t clock_ms(void)
{
	return clock_raw() / 1000000;
}

#endif
