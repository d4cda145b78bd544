/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of the agent's protocol: the agent's program on this machine's kernel, which then is
 * guest and host in one, or a guest's end that the test plays itself.
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
	pid_t process; /* 0: the guest's end is the test's */
	int guest;     /* that end, or -1 */
	struct guest_account account;
	struct ring *ring;
	struct agent *agent;
};

/* Who is at the guest's end. */
enum agent_fixture_end { TEST_ITSELF, AGENT_WITH_EVENTS, AGENT_WITHOUT_EVENTS };

uint64_t agent_fixture_now(void); /* ns, CLOCK_MONOTONIC_RAW */

bool agent_fixture_set_up(struct agent_fixture *fixture, enum agent_fixture_end end);
/* STATISTICS, which may be NULL, gets the final ones. */
void agent_fixture_tear_down(struct agent_fixture *fixture, struct agent_statistics *statistics);

/* Waits for CONDITION of the statistics, 20 s at most. */
bool agent_fixture_wait(struct agent_fixture *fixture,
			bool (*condition)(const struct agent_statistics *));
/* Two of those. */
bool agent_fixture_is_answered(const struct agent_statistics *statistics);
bool agent_fixture_snapshot_is_done(const struct agent_statistics *statistics);

/* Reads the ring until a record for which FOUND is true, 20 s at most. */
bool agent_fixture_find(struct agent_fixture *fixture,
			bool (*found)(const struct sideband *, void *), void *context);

#endif
