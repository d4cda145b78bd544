/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent_fixture.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"

uint64_t agent_fixture_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

bool agent_fixture_set_up(struct agent_fixture *fixture, enum agent_fixture_end end)
{
	struct agent_options options = { 0 };
	int fds[2];

	*fixture = (struct agent_fixture){ .guest = -1 };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) ||
	    ring_create(&fixture->ring, 4 << 20))
		return false;
	if (end != TEST_ITSELF) {
		fixture->process = agent_process_run(fds[1], end == AGENT_WITH_EVENTS);
		close(fds[1]);
	} else {
		fixture->guest = fds[1];
	}
	options.fd = fds[0];
	options.ring = fixture->ring;
	guest_account_init(&fixture->account, GUEST_ACCOUNT_DEFAULT);
	options.account = &fixture->account;
	options.tsc_known = end != TEST_ITSELF; /* it runs on our kernel, so the offset is 0 */
	return !agent_start(&fixture->agent, &options);
}

void agent_fixture_tear_down(struct agent_fixture *fixture, struct agent_statistics *statistics)
{
	agent_stop(fixture->agent, statistics);
	if (fixture->guest >= 0)
		close(fixture->guest);
	if (fixture->process > 0) {
		kill(fixture->process, SIGTERM);
		waitpid(fixture->process, NULL, 0);
	}
	ring_destroy(fixture->ring);
}

bool agent_fixture_wait(struct agent_fixture *fixture,
			bool (*condition)(const struct agent_statistics *))
{
	struct agent_statistics statistics;

	for (int i = 0; i < 2000; i++) {
		agent_statistics(fixture->agent, &statistics);
		if (condition(&statistics))
			return true;
		usleep(10000);
	}
	return false;
}

bool agent_fixture_is_answered(const struct agent_statistics *statistics)
{
	return statistics->open;
}

bool agent_fixture_snapshot_is_done(const struct agent_statistics *statistics)
{
	return statistics->snapshot_done;
}

bool agent_fixture_find(struct agent_fixture *fixture,
			bool (*found)(const struct sideband *, void *), void *context)
{
	const struct ring_record *record;

	for (int i = 0; i < 2000; i++) {
		while ((record = ring_read(fixture->ring))) {
			if (record->type != RECORD_SIDEBAND)
				continue;
			CHECK(sideband_check(span_of(record->payload,
						     record->size - sizeof(*record))) != NULL);
			if (found((const struct sideband *)record->payload, context))
				return true;
		}
		ring_read_done(fixture->ring);
		usleep(10000);
	}
	return false;
}
