/* SPDX-License-Identifier: Apache-2.0 */
/* Processes reported by the guest's process connector: which are scanned, and which were missed.
 */
#include "guest-agent/connector.c"

#include "tests/unit/shim/test.h"

#define LATE UINT64_MAX /* ms: every waiting process is due */

static void happen(struct connector *connector, unsigned int what, pid_t pid)
{
	struct proc_event event = { .what = what };
	uint8_t record[CONNECTOR_RECORD_MAX];
	size_t size;
	pid_t whose;

	if (what == PROC_EVENT_FORK)
		event.event_data.fork.child_pid = event.event_data.fork.child_tgid = pid;
	else if (what == PROC_EVENT_EXEC)
		event.event_data.exec.process_pid = event.event_data.exec.process_tgid = pid;
	else
		event.event_data.exit.process_pid = event.event_data.exit.process_tgid = pid;
	CHECK_EQUAL(take(connector, &event, record, &size, &whose), CONNECTOR_RECORD);
	CHECK_EQUAL(whose, pid);
}

TEST(agent_connector, an_execve_after_a_fork_is_not_missed)
{
	struct connector connector = { .fd = -1 };

	happen(&connector, PROC_EVENT_FORK, 7);
	happen(&connector, PROC_EVENT_EXEC, 7);
	CHECK_EQUAL(connector.missed, 0);
	CHECK_EQUAL(connector_due(&connector, LATE), 7);
	happen(&connector, PROC_EVENT_EXIT, 7);
	CHECK_EQUAL(connector.missed, 0);
	CHECK_EQUAL(connector.due_count, 0);
}

/* Nor twice, however many programs it ran. */
TEST(agent_connector, an_exit_before_the_scan_counts_once)
{
	struct connector connector = { .fd = -1 };

	happen(&connector, PROC_EVENT_FORK, 7);
	happen(&connector, PROC_EVENT_EXEC, 7);
	happen(&connector, PROC_EVENT_EXEC, 7);
	happen(&connector, PROC_EVENT_EXIT, 7);
	CHECK_EQUAL(connector.missed, 1);
	/* Its exit was not reported. */
	happen(&connector, PROC_EVENT_FORK, 7);
	happen(&connector, PROC_EVENT_FORK, 7);
	CHECK_EQUAL(connector.missed, 2);
	CHECK_EQUAL(connector.due_count, 1);
}
