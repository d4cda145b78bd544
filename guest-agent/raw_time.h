/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of everything that the agent tells: CLOCK_MONOTONIC_RAW, which nobody sets or slews.
 * Any thread.
 */
#ifndef KVMSCOPE_GUEST_AGENT_RAW_TIME_H
#define KVMSCOPE_GUEST_AGENT_RAW_TIME_H

#include <stdint.h>
#include <time.h>

#include "shared/clock_ns.h"

static inline uint64_t clock_raw(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

/* CPU time of this thread, ns: for work that is to rest in proportion to what it cost. */
static inline uint64_t clock_cpu(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* ms: for waiting. */
static inline uint64_t clock_raw_ms(void)
{
	return clock_ms(CLOCK_MONOTONIC_RAW);
}

#endif
