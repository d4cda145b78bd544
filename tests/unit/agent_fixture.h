/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of the agent protocol: the agent's program on this machine's kernel, which is guest and
 * host at once, or a guest's end that the test implements.
 */
#ifndef KVMSCOPE_TESTS_UNIT_AGENT_FIXTURE_H
#define KVMSCOPE_TESTS_UNIT_AGENT_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shared/sideband_record.h"
#include "tests/unit/agent_process.h"
#include "vmm/agent/agent_client.h"

struct agent_fixture {
	pid_t process; /* 0: the test implements the guest's end */
	int guest;     /* the guest's end, or -1 */
	struct guest_account account;
	struct ring *ring;
	struct agent *agent;
};

/* The implementation of the guest's end. */
enum agent_fixture_end { TEST_ITSELF, AGENT_WITH_EVENTS, AGENT_WITHOUT_EVENTS };

uint64_t agent_fixture_now(void); /* ns, CLOCK_MONOTONIC_RAW */

bool agent_fixture_set_up(struct agent_fixture *fixture, enum agent_fixture_end end);
/* STATISTICS (may be NULL) gets the final statistics. */
void agent_fixture_tear_down(struct agent_fixture *fixture, struct agent_statistics *statistics);

/* Waits until CONDITION is true for the statistics, at most 20 s. */
bool agent_fixture_wait(struct agent_fixture *fixture,
			bool (*condition)(const struct agent_statistics *));
/* Two such conditions. */
bool agent_fixture_is_answered(const struct agent_statistics *statistics);
bool agent_fixture_snapshot_is_done(const struct agent_statistics *statistics);

/* Reads the ring until a record for which FOUND returns true, at most 20 s. */
bool agent_fixture_find(struct agent_fixture *fixture,
			bool (*found)(const struct sideband *, void *), void *context);

#endif
