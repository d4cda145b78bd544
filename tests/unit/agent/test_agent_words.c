/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kvmscope run and attach log about an agent that detects processes without events of its
 * guest's kernel, or not at all.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/agent_process.h"
#include "tests/unit/captured_log.h"
#include "tests/unit/shim/test.h"
#include "vmm/cli/record_progress.h"
#include "vmm/cli/run_agent.h"

#define BY_NETLINK                                                                                 \
	"allows its agent no perf events (Permission denied): processes are detected by netlink"
#define BLIND       "cannot see processes: Permission denied"
#define OLD_VERSION "speaks another version of the protocol, 2"
#define ALL_IS_WELL "reported the guest's processes"

/* As in kvmscope run, with a VM without vCPUs; without PROCESS nothing is at the port. */
struct run {
	struct run_options options;
	struct run_agent *agent;
	struct session_agent *session;
	pid_t process;
};

static bool begin_run(struct run *run, bool answered, bool events)
{
	struct machine_options machine = { .agent_fd = -1 };
	const struct vm vm = { .vcpu_count = 0 };
	struct session_agent_options options;

	*run = (struct run){ .options = { .agent = RUN_AGENT_GUEST, .boot.append = "" } };
	if (run_agent_create(&run->agent, &run->options))
		return false;
	run_agent_attach(run->agent, &machine);
	if (answered)
		run->process = agent_process_run(machine.agent_fd, events);
	options = run_agent_connect(run->agent, &vm);
	return !session_agent_create(&run->session, &options, NULL, false, NULL) &&
	       !session_agent_start(run->session);
}

/* The first record means that the session has begun. 20 s at most. */
static bool wait_for_session(struct run *run)
{
	size_t count;

	for (int i = 0; i < 2000; i++) {
		if (ring_read(session_agent_rings(run->session, &count)[0]))
			return true;
		usleep(10000);
	}
	return false;
}

static void end_run(struct run *run, struct captured_log *log)
{
	struct agent_statistics statistics;

	session_agent_end(run->session);
	session_agent_count(run->session, &statistics);
	captured_log_begin(log);
	run_agent_report(&run->options, &statistics);
	captured_log_end(log);
	if (run->process) {
		kill(run->process, SIGTERM);
		waitpid(run->process, NULL, 0);
	}
	session_agent_destroy(run->session);
	run_agent_destroy(run->agent);
}

/* Captures what run logs about an agent that answers or not, with or without events. */
static void run(struct captured_log *log, bool answered, bool events)
{
	struct run run;

	REQUIRE(begin_run(&run, answered, events));
	CHECK(!answered || wait_for_session(&run));
	end_run(&run, log);
}

TEST(agent_words, run_reports_detection_by_netlink)
{
	struct captured_log log;

	run(&log, true, false);
	if (strstr(log.text, BLIND))
		SKIP("no process connector here (CONFIG_PROC_EVENTS), or this user may not listen to it");
	if (!strstr(log.text, BY_NETLINK))
		FAIL_TEST("it logs: %s", log.text);
}

TEST(agent_words, run_warns_of_nothing_for_an_agent_with_events)
{
	struct captured_log log;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	run(&log, true, true);
	if (strstr(log.text, "netlink") || strstr(log.text, "cannot see") ||
	    strstr(log.text, "answer"))
		FAIL_TEST("it logs: %s", log.text);
}

TEST(agent_words, run_reports_that_no_agent_answered)
{
	struct captured_log log;

	run(&log, false, false);
	CHECK(strstr(log.text, "no guest agent answered: is kvmscope-agent installed"));
}

static void check_attach(const struct agent_statistics *statistics, const char *text, bool reports)
{
	struct captured_log log;

	captured_log_begin(&log);
	attach_summary_log_agent(statistics);
	captured_log_end(&log);
	if (!strstr(log.text, text) || reports != !!strstr(log.text, ALL_IS_WELL))
		FAIL_TEST("no \"%s\" in: %s", text, log.text);
}

TEST(agent_words, attach_reports_how_the_agent_detects_processes)
{
	struct agent_statistics statistics = { .sessions = 1, .features = AGENT_FEATURE_EVENTS };

	check_attach(&statistics, ALL_IS_WELL, true);
	statistics.error = -EACCES;
	statistics.features = AGENT_FEATURE_CONNECTOR;
	check_attach(&statistics, BY_NETLINK, true);
	statistics.features = 0;
	check_attach(&statistics, BLIND, false);
	statistics.error = -EPROTONOSUPPORT;
	statistics.version = 2;
	check_attach(&statistics, OLD_VERSION, false);
	statistics = (struct agent_statistics){ 0 };
	check_attach(&statistics, "no guest agent answered", false);
}
