/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's clocks as a test sets them, for a part of the agent whose .c the test includes behind
 * this: its pace is counted, not timed.
 */
#ifndef KVMSCOPE_TESTS_UNIT_AGENT_SET_CLOCK_H
#define KVMSCOPE_TESTS_UNIT_AGENT_SET_CLOCK_H

#include "guest-agent/timing.h"

static struct {
	uint64_t ms;      /* what it is */
	uint64_t cpu;     /* ns of a CPU, so far; */
	uint64_t cpu_add; /* and from one question for them to the next */
} set_clock;

#define clock_raw_ms() (set_clock.ms)
#define clock_cpu()    (set_clock.cpu += set_clock.cpu_add)

#endif
