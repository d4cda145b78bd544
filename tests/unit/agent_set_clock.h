/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks of the agent that a test sets, for a part of the agent whose .c the test includes after
 * this file: the rate limit is counted, not timed.
 */
#ifndef KVMSCOPE_TESTS_UNIT_AGENT_SET_CLOCK_H
#define KVMSCOPE_TESTS_UNIT_AGENT_SET_CLOCK_H

#include "guest-agent/timing.h"

static struct {
	uint64_t ms;      /* the time */
	uint64_t cpu;     /* ns of CPU time so far */
	uint64_t cpu_add; /* increase with each query */
} set_clock;

#define clock_raw_ms() (set_clock.ms)
#define clock_cpu()    (set_clock.cpu += set_clock.cpu_add)

#endif
