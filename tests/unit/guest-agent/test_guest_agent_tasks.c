/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's reports about its own tasks agree with this machine's kernel. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/reported_tasks.h"

/* Of the thread in /proc. */
static bool is_called(const struct agent_task *task)
{
	char path[64], comm[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%u/task/%u/comm", task->tgid, task->pid);
	file = fopen(path, "re");
	if (file) {
		(void)!fgets(comm, sizeof(comm), file);
		fclose(file);
	}
	comm[strcspn(comm, "\n")] = '\0';
	return !strcmp(comm, task->comm);
}

static bool has_mark(const struct agent_task *task)
{
	uint8_t mark[AGENT_TASK_MARK];
	char path[64];
	bool has;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/mem", task->tgid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	has = fd >= 0 &&
	      pread(fd, mark, sizeof(mark), (off_t)task->marked) == (ssize_t)sizeof(mark) &&
	      !memcmp(mark, task->mark, sizeof(mark));
	if (fd >= 0)
		close(fd);
	return has;
}

static bool take(struct agent_fixture *fixture, struct reported_tasks *reported)
{
	bool taken = false;

	for (int i = 0; !taken && i < 2000; i++, usleep(10000)) {
		agent_request_tasks(fixture->agent);
		taken = !agent_pop_tasks(fixture->agent, reported);
	}
	return taken;
}

TEST(guest_agent_tasks, have_the_reported_values)
{
	struct agent_fixture fixture;
	struct reported_tasks reported;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_is_answered));
	CHECK(take(&fixture, &reported));
	CHECK_EQUAL(reported.count, 6);
	for (size_t i = 0; i < reported.count; i++) {
		CHECK(is_called(&reported.tasks[i]));
		CHECK(has_mark(&reported.tasks[i]));
	}
	agent_fixture_tear_down(&fixture, NULL);
}
