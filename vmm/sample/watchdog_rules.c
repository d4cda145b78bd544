/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/watchdog_rules.h"

#include <stdio.h>

#include "shared/clock_ns.h"

/* True if KIND has just gone out of bounds. */
static bool begins(struct watchdog_state *state, enum trigger_kind kind, bool out_of_bounds)
{
	bool reported = state->reported[kind];

	state->reported[kind] = out_of_bounds;
	return out_of_bounds && !reported;
}

/* The last increase may be undone, see vcpu_reading: then there was no exit, and nothing has
 * moved. */
static void update_moved(struct watchdog_state *state, const struct vcpu_reading *reading)
{
	if (reading->exits < state->moved.exits) {
		state->moved = state->before;
		state->moved.exits = reading->exits;
		state->reported[TRIGGER_STUCK_VCPU] = state->reported_before;
	} else if (reading->exits > state->moved.exits) {
		state->before = state->moved;
		state->reported_before = state->reported[TRIGGER_STUCK_VCPU];
		state->moved = *reading;
	}
}

static unsigned int judge_stuck(struct watchdog_state *state, const struct watchdog_limits *limits,
				unsigned int index, const struct vcpu_reading *reading,
				struct watchdog_alarm *alarm)
{
	uint64_t ran;

	update_moved(state, reading);
	ran = reading->ran - state->moved.ran;
	if (!begins(state, TRIGGER_STUCK_VCPU, limits->stuck && ran >= limits->stuck * NS_PER_MS))
		return 0;
	alarm->kind = TRIGGER_STUCK_VCPU;
	snprintf(alarm->detail, sizeof(alarm->detail),
		 "vCPU %u ran for %llu ms without an exit; the limit is %u", index,
		 (unsigned long long)(ran / NS_PER_MS), limits->stuck);
	return 1;
}

static unsigned int judge_exits(struct watchdog_state *state, const struct watchdog_limits *limits,
				unsigned int index, const struct vcpu_reading *reading,
				struct watchdog_alarm *alarm)
{
	double seconds = (double)(reading->time - state->second.time) / (double)NS_PER_S;
	double rate = reading->exits > state->second.exits
			      ? (double)(reading->exits - state->second.exits) / seconds
			      : 0;

	if (!begins(state, TRIGGER_EXIT_RATE, limits->exits && rate > (double)limits->exits))
		return 0;
	alarm->kind = TRIGGER_EXIT_RATE;
	snprintf(alarm->detail, sizeof(alarm->detail),
		 "vCPU %u made %.0f exits/s; the limit is %llu", index, rate,
		 (unsigned long long)limits->exits);
	return 1;
}

static unsigned int judge_steal(struct watchdog_state *state, const struct watchdog_limits *limits,
				unsigned int index, const struct vcpu_reading *reading,
				struct watchdog_alarm *alarm)
{
	double time = (double)(reading->time - state->second.time);
	double share = 100 * (double)(reading->waited - state->second.waited) / time;

	if (!begins(state, TRIGGER_STEAL, limits->steal && share > limits->steal))
		return 0;
	alarm->kind = TRIGGER_STEAL;
	snprintf(alarm->detail, sizeof(alarm->detail),
		 "vCPU %u waited %.0f %% of a second for a CPU of the host; the limit is %u %%",
		 index, share, limits->steal);
	return 1;
}

unsigned int watchdog_judge(struct watchdog_state *state, const struct watchdog_limits *limits,
			    unsigned int index, const struct vcpu_reading *reading,
			    struct watchdog_alarm *alarms)
{
	unsigned int count;

	if (!state->begun) {
		state->begun = true;
		state->before = state->moved = state->second = *reading;
		return 0;
	}
	count = judge_stuck(state, limits, index, reading, alarms);
	if (reading->time - state->second.time < NS_PER_S)
		return count;
	count += judge_exits(state, limits, index, reading, alarms + count);
	count += judge_steal(state, limits, index, reading, alarms + count);
	state->second = *reading;
	return count;
}
