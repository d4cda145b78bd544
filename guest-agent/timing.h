/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's clocks, and waiting. Any thread. */
#ifndef KVMSCOPE_GUEST_AGENT_TIMING_H
#define KVMSCOPE_GUEST_AGENT_TIMING_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

#include "shared/clock_ns.h"

/* ns of CLOCK_MONOTONIC_RAW, which is never set or slewed: the time of everything that is reported.
 */
static inline uint64_t clock_raw(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

/* The same in ms, for timeouts. */
static inline uint64_t clock_raw_ms(void)
{
	return clock_ms(CLOCK_MONOTONIC_RAW);
}

/* CPU time of this thread in ns, for work that pauses in proportion to its cost. */
static inline uint64_t clock_cpu(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/*
 * poll(2) with TIMEOUT in ms, -1 for none. Signals are blocked everywhere else, so that none is
 * missed between a check of the stop flag and the wait.
 */
static inline int wait_for_any(struct pollfd *fds, nfds_t count, int timeout)
{
	struct timespec time = { timeout / 1000, timeout % 1000 * 1000000l };
	sigset_t none;

	sigemptyset(&none);
	return ppoll(fds, count, timeout < 0 ? NULL : &time, &none);
}

static inline void wait_ms(int ms)
{
	wait_for_any(NULL, 0, ms);
}

#endif
