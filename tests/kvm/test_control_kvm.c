/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope ctl on a running guest, and the resulting recording. */
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/machine/host_probe.h"
#include "vmm/perf_data/perf_data_reader.h"

#define SECOND 1000000000ull

/* A guest that spins at CPL 3, and its control socket. */
struct controlled {
	char socket[64], output[64];
	struct program program;
};

static bool start(struct controlled *run, const char *options)
{
	char arguments[512];

	snprintf(run->socket, sizeof(run->socket), "build/test-control-%d", getpid());
	snprintf(run->output, sizeof(run->output), "build/test-control-%d.data", getpid());
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " GUEST_IMAGE " --mem 64M --timeout 250 --append program=spin "
		 "--control %s -o %s %s",
		 run->socket, run->output, options);
	program_start(&run->program, arguments);
	return program_wait_for(&run->program, "spinning");
}

static void stop(struct controlled *run)
{
	kill(run->program.pid, SIGTERM);
	program_wait(&run->program);
	CHECK_EQUAL(run->program.status, 0);
	CHECK_EQUAL(access(run->socket, F_OK), -1);
}

static void check_ctl(const struct controlled *run, const char *command, int status,
		      const char *text)
{
	struct program program;
	char arguments[256];

	snprintf(arguments, sizeof(arguments), "ctl --socket %s %s", run->socket, command);
	program_run(&program, arguments);
	if (program.status != status || !strstr(program.text, text))
		FAIL_TEST("kvmscope %s: exit status %d, expected %d and '%s' in:\n%s", arguments,
			  program.status, status, text, program.text);
}

static uint64_t now(clockid_t clock)
{
	struct timespec time = { 0 };

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static bool is_vcpu(const char *thread)
{
	char path[64], name[16] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%s/comm", thread);
	file = fopen(path, "re");
	if (file && !fgets(name, sizeof(name), file))
		*name = '\0';
	if (file)
		fclose(file);
	return !strcmp(name, "vCPU 0\n");
}

/*
 * CPU time of the vCPU's thread in ns, on which its samples depend: the thread that writes them
 * takes longer on a slow machine.
 */
static uint64_t cpu_time(const struct controlled *run)
{
	char pattern[64], path[64];
	unsigned long long time = 0;
	FILE *file = NULL;
	glob_t threads;

	snprintf(pattern, sizeof(pattern), "/proc/%d/task/*", run->program.pid);
	if (glob(pattern, 0, NULL, &threads))
		return 0;
	for (size_t i = 0; i < threads.gl_pathc && !file; i++) {
		snprintf(path, sizeof(path), "%s/schedstat", threads.gl_pathv[i]);
		file = is_vcpu(threads.gl_pathv[i]) ? fopen(path, "re") : NULL;
	}
	globfree(&threads);
	if (!file || fscanf(file, "%llu", &time) != 1)
		FAIL_TEST("cannot read the schedstat of the vCPU thread");
	if (file)
		fclose(file);
	return time;
}

/* A part of the run between two commands, without changes. */
struct part {
	uint64_t begin, end; /* CLOCK_MONOTONIC_RAW: from the answer to one command to the start of
			      * the next */
	uint64_t cpu_time;   /* ns of CPU time that the vCPU used in it */
	uint64_t tick; /* in ns; periods must be multiples of it; 0: there must be no samples */
	uint64_t samples, weight; /* in the recording, without the first sample */
	uint64_t odd;             /* samples with another period */
	bool begun;               /* the first sample was read; it may be due under the previous
				   * setting */
};

/* Waits until the guest has used TIME ns of CPU time. */
static void pass(const struct controlled *run, struct part *part, uint64_t time,
		 unsigned int frequency)
{
	uint64_t before = cpu_time(run);

	*part = (struct part){ .begin = now(CLOCK_MONOTONIC_RAW),
			       .tick = frequency ? SECOND / frequency : 0 };
	while (cpu_time(run) - before < time)
		usleep(2000);
	part->end = now(CLOCK_MONOTONIC_RAW);
	part->cpu_time = cpu_time(run) - before;
}

#define PARTS 4

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct part *parts = context;

	for (int i = 0; i < PARTS; i++) {
		struct part *part = &parts[i];

		if (sample->time < part->begin || sample->time > part->end)
			continue;
		if (part->begun) {
			part->samples++;
			part->weight += sample->period;
			part->odd += part->tick && (!sample->period || sample->period % part->tick);
		}
		part->begun = true;
	}
	return 0;
}

static void read_parts(const struct controlled *run, struct part *parts)
{
	struct perf_data_events events = { .sample = count_sample, .context = parts };
	struct perf_data_reader *reader;

	REQUIRE_EQUAL(perf_data_reader_open(&reader, run->output), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
}

static void check_part(const struct part *part)
{
	double share = (double)part->weight / (double)part->cpu_time;

	CHECK_EQUAL(part->odd, 0);
	if (!part->tick)
		CHECK_EQUAL(part->samples, 0);
	else if (fabs(share - 1) > 0.2)
		FAIL_TEST("%llu samples at a tick of %llu ns have a weight of %.2f of the CPU time",
			  (unsigned long long)part->samples, (unsigned long long)part->tick, share);
}

static void check_report(const struct controlled *run)
{
	static const char expected[] = "# Event    cpu-clock, 1000 Hz requested, ";
	char command[256], line[256];
	FILE *report;
	bool found = false;

	snprintf(command, sizeof(command), "build/kvmscope report -i %s", run->output);
	report = popen(command, "r");
	while (report && fgets(line, sizeof(line), report))
		found |= !strncmp(line, expected, strlen(expected));
	CHECK(report && !pclose(report));
	CHECK(found);
}

/* However long a command takes on a busy machine, at most one sample may follow it. */
TEST(ctl, pause_and_frequency_apply_at_once_with_correct_periods)
{
	struct part parts[PARTS];
	struct controlled run;

	GUEST_REQUIRED();
	REQUIRE(start(&run, "-F 1000"));
	pass(&run, &parts[0], SECOND / 2, 1000);
	check_ctl(&run, "freq 99", 0, "sampling at 99 Hz");
	pass(&run, &parts[1], SECOND, 99);
	check_ctl(&run, "pause", 0, "paused; 99 Hz when resumed");
	pass(&run, &parts[2], SECOND / 2, 0);
	check_ctl(&run, "freq 4000", 0, "paused; 4000 Hz when resumed");
	check_ctl(&run, "resume", 0, "sampling at 4000 Hz");
	pass(&run, &parts[3], SECOND / 2, 4000);
	stop(&run);
	read_parts(&run, parts);
	for (int i = 0; i < PARTS; i++)
		check_part(&parts[i]);
	check_report(&run);
	unlink(run.output);
}

TEST(ctl, a_run_reports_its_status)
{
	struct controlled run;

	GUEST_REQUIRED();
	REQUIRE(start(&run, "-F 500 --clock wall"));
	check_ctl(&run, "status", 0, "sampling at 500 Hz of wall time");
	check_ctl(&run, "--json status", 0, "\"frequency\": 500");
	check_ctl(&run, "--json pause", 0, "\"state\": \"paused\"");
	check_ctl(&run, "status", 0, "paused; 500 Hz of wall time when resumed");
	stop(&run);
	check_ctl(&run, "status", 1, "No such file or directory");
	unlink(run.output);
}

TEST(ctl, a_run_that_waits_for_a_line_can_be_resumed_earlier)
{
	struct controlled run;

	GUEST_REQUIRED();
	REQUIRE(start(&run, "--from-line never"));
	check_ctl(&run, "status", 0, "paused; 999 Hz of cpu time when resumed");
	check_ctl(&run, "freq 2000", 0, "paused; 2000 Hz when resumed");
	check_ctl(&run, "resume", 0, "sampling at 2000 Hz");
	stop(&run);
	unlink(run.output);
}

TEST(ctl, a_run_without_a_profile_refuses_changes_to_it)
{
	struct controlled run;

	GUEST_REQUIRED();
	REQUIRE(start(&run, "--no-profile"));
	check_ctl(&run, "status", 0, "none (--no-profile)");
	check_ctl(&run, "pause", 1, "there is nothing to sample");
	check_ctl(&run, "freq 99", 1, "there is nothing to sample");
	check_ctl(&run, "bp list", 1, "has --no-profile");
	check_ctl(&run, "bp add schedule:x", 1, "has --no-profile");
	check_ctl(&run, "bp remove 0", 1, "has --no-profile");
	stop(&run);
}

/* The address is unused, but the watch exists. */
TEST(ctl, breakpoints_are_listed)
{
	struct controlled run;

	GUEST_REQUIRED();
	REQUIRE(start(&run, "--no-buildid-cache -o /dev/null --watch 0xffffffff81000000:x,pinned"));
	check_ctl(&run, "bp list", 0, "   0  DR0  watch  0xffffffff81000000    x   1");
	check_ctl(&run, "bp list", 0, " 0  mem:0xffffffff81000000:x\n");
	check_ctl(&run, "bp list", 0, "   0  DR1  free");
	check_ctl(&run, "--json bp list", 0, "\"owner\": \"watch\"");
	stop(&run);
}

/* The vCPU applies a change when it is kicked, right after the answer. */
static void wait_for_list(const struct controlled *run, const char *text)
{
	char arguments[256];

	snprintf(arguments, sizeof(arguments), "ctl --socket %s bp list", run->socket);
	for (int i = 0; i < 500; i++) {
		struct program program;

		program_run(&program, arguments);
		if (strstr(program.text, text))
			return;
		usleep(10000);
	}
	FAIL_TEST("bp list never shows '%s'", text);
}

static unsigned int events_of(const char *path)
{
	struct perf_data_reader *reader;
	unsigned int events;

	if (perf_data_reader_open(&reader, path))
		return 0;
	perf_data_reader_run(reader, &(struct perf_data_events){ .sample = NULL });
	events = perf_data_reader_summary(reader)->events;
	perf_data_reader_close(reader);
	return events;
}

/*
 * Kinds that this KVM does not report are refused while the guest runs as well. Three pinned
 * watches leave room for it.
 */
static void check_kinds(const struct controlled *run)
{
	struct probe_row row;

	REQUIRE_EQUAL(probe_one("debug.watchpoint", &row), 0);
	if ((row.works & PROBE_IN_KERNEL) && (row.works & PROBE_IN_USER))
		return;
	check_ctl(run, "bp add 0xffffffff81000100:8:w", 1,
		  "does not report accesses to watched data in guests correctly");
}

/*
 * The run begins without watches. Nothing is executed at their addresses: this tests who owns which
 * register.
 */
TEST(ctl, breakpoints_are_added_and_removed)
{
	struct controlled run;

	GUEST_REQUIRED();
	REQUIRE(start(&run, "--no-buildid-cache"));
	check_ctl(&run, "bp list", 0, "   0  DR0  unknown");
	check_ctl(&run, "bp add 0xffffffff81000000:x", 0, "watch 0, mem:0xffffffff81000000:x\n");
	wait_for_list(&run, "   0  DR0  watch  0xffffffff81000000    x   1");
	check_ctl(&run, "bp add schedule:x,pinned", 0,
		  "watch 1, mem:schedule:x, waiting until the guest's kernel is");
	check_ctl(&run, "bp add 0xffffffff81000010:x,pinned", 0, "watch 2");
	check_ctl(&run, "bp add 0xffffffff81000020:x,pinned", 0, "watch 3");
	check_ctl(&run, "bp add 0xffffffff81000030:x,pinned", 1,
		  "; the watches are 0 mem:0xffffffff81000000:x, 1 mem:schedule:x (pinned), 2 ");
	check_ctl(&run, "bp add 0xffffffff81000030:x@7", 1, "there is no vCPU 7");
	check_ctl(&run, "bp add 0xffffffff81000030:3:w", 1, "the length must be 1, 2, 4 or 8");
	check_kinds(&run);
	check_ctl(&run, "bp remove 2", 0,
		  "watch 2, mem:0xffffffff81000010:x, removed; it had 0 hits");
	check_ctl(&run, "bp remove 2", 1, "there is no watch 2");
	check_ctl(&run, "bp remove schedule:x", 0, "watch 1, mem:schedule:x, removed");
	check_ctl(&run, "bp remove mem:0xffffffff81000000:x", 0, "watch 0");
	check_ctl(&run, "bp remove 0xffffffff81000000:x", 1,
		  "there is no watch 0xffffffff81000000:x");
	check_ctl(&run, "bp list", 0, "     0 removed   all flexible          0 ");
	check_ctl(&run, "bp add 0xffffffff81000020:x", 0, "watch 4");
	check_ctl(&run, "bp remove mem:0xffffffff81000020:x", 1,
		  "2 watches are mem:0xffffffff81000020:x");
	check_ctl(&run, "bp remove 0xffffffff81000020:x,pinned", 0, "watch 3");
	check_ctl(&run, "bp remove 4", 0, "watch 4");
	wait_for_list(&run, "   0  DR0  unknown");
	stop(&run);
	CHECK_EQUAL(events_of(run.output), 6);
	unlink(run.output);
}

/* Checks the pending watch, if perf is installed. */
static void check_pending_watch(const char *path)
{
	char command[256];

	snprintf(command, sizeof(command),
		 "! perf --version > /dev/null 2>&1 || "
		 "perf report --stats -i %s 2> /dev/null | grep -q ' THROTTLE events: *1 '",
		 path);
	CHECK_EQUAL(system(command), 0);
}

/*
 * The recorder has not written a file yet: the file that it writes later has the watches of that
 * time.
 */
TEST(ctl, breakpoints_can_be_added_to_a_flight_recorder)
{
	struct program program;
	struct controlled run;
	char arguments[256];

	GUEST_REQUIRED();
	REQUIRE(start(&run, "--no-buildid-cache --flight 10s"));
	check_ctl(&run, "bp add schedule:x", 0, "watch 0, mem:schedule:x, waiting");
	check_ctl(&run, "bp add 0xffffffff81000000:x", 0, "watch 1");
	/* Both are added at once. */
	wait_for_list(&run, "   0  DR0  watch  0xffffffff81000000    x   1");
	snprintf(arguments, sizeof(arguments), "dump --socket %s", run.socket);
	program_run(&program, arguments);
	CHECK_EQUAL(program.status, 0);
	CHECK_EQUAL(events_of(run.output), 3);
	check_pending_watch(run.output);
	check_ctl(&run, "bp remove 0", 0, "watch 0");
	stop(&run);
	unlink(run.output);
}

/* Returns the previous one for restore_runtime_directory(). */
static char *set_runtime_directory(const char *directory)
{
	const char *before = getenv("XDG_RUNTIME_DIR");
	char *copy = before ? strdup(before) : NULL;

	setenv("XDG_RUNTIME_DIR", directory, 1);
	return copy;
}

static void restore_runtime_directory(char *before)
{
	if (before)
		setenv("XDG_RUNTIME_DIR", before, 1);
	else
		unsetenv("XDG_RUNTIME_DIR");
	free(before);
}

/* Uses its own runtime directory, in which there is no other run. */
TEST(ctl, runs_are_selected_by_name)
{
	char directory[] = "/tmp/kvmscope-ctl-XXXXXX", path[64];
	char *before;
	struct program one, two, ctl;

	GUEST_REQUIRED();
	REQUIRE(mkdtemp(directory));
	before = set_runtime_directory(directory);
#define NAMED                                                                                      \
	"run --no-profile --kernel " GUEST_IMAGE " --timeout 250 --append program=spin --name "
	program_start(&one, NAMED "one");
	CHECK(program_wait_for(&one, "spinning"));
	program_run(&ctl, "ctl --name one status");
	CHECK_EQUAL(ctl.status, 0);
	CHECK(strstr(ctl.text, "named one"));
	if (access("/run/kvmscope/kvmscoped.sock", F_OK)) { /* unless this machine has a running
							     * kvmscoped */
		program_run(&ctl, "ctl dump web");
		CHECK_EQUAL(ctl.status, 1);
		CHECK(strstr(ctl.text, "kvmscoped, which profiles domains, is not running"));
	}
	program_start(&two, NAMED "two");
	CHECK(program_wait_for(&two, "spinning"));
	program_run(&ctl, "ctl list");
	CHECK(strstr(ctl.text, " one ") && strstr(ctl.text, " two "));
	program_run(&ctl, "ctl status");
	CHECK_EQUAL(ctl.status, 1);
	CHECK(strstr(ctl.text, "select one by"));
	program_run(&ctl, NAMED "two");
	CHECK_EQUAL(ctl.status, 1);
	CHECK(strstr(ctl.text, "a run named two exists"));
	/* A killed run disappears from the list, and its name can be used again. */
	kill(one.pid, SIGKILL);
	program_wait(&one);
	program_run(&ctl, "ctl --name one status");
	CHECK_EQUAL(ctl.status, 1);
	program_start(&one, NAMED "one");
	CHECK(program_wait_for(&one, "spinning"));
	kill(one.pid, SIGTERM);
	program_wait(&one);
	kill(two.pid, SIGTERM);
	program_wait(&two);
	snprintf(path, sizeof(path), "%s/kvmscope", directory);
	CHECK_EQUAL(rmdir(path), 0);
	CHECK_EQUAL(rmdir(directory), 0);
	restore_runtime_directory(before);
}

/* A run continues without the default socket, but not without one that was requested. */
TEST(ctl, a_run_continues_without_the_default_socket)
{
	char *before;
	struct program run;

	GUEST_REQUIRED();
	before = set_runtime_directory("/none");
#define HELLO                                                                                      \
	"run --no-profile --kernel " GUEST_IMAGE " --timeout 250 --append program=hello_exit=5 "
	program_run(&run, HELLO);
	CHECK_EQUAL(run.status, 5);
	CHECK(strstr(run.text, "cannot create the directory /none/kvmscope"));
	program_run(&run, HELLO "--name x");
	CHECK_EQUAL(run.status, 1);
	program_run(&run, HELLO "--control /none/x");
	CHECK_EQUAL(run.status, 1);
	CHECK(strstr(run.text, "/none/x"));
	program_run(&run, HELLO "--no-control");
	CHECK_EQUAL(run.status, 5);
	CHECK(!strstr(run.text, "/none"));
	restore_runtime_directory(before);
}

TEST(ctl, wrong_usage_reports_what_is_right)
{
	program_refuses("ctl", "a command is missing");
	program_refuses("ctl dance", "command dance: it must be one of list, ");
	program_refuses("ctl freq", "the number of samples per second is missing");
	program_refuses("ctl freq 0", "a number from 1 to 10000");
	program_refuses("ctl freq 10001", "a number from 1 to 10000");
	program_refuses("ctl pause 3", "one word too many");
	program_refuses("ctl bp", "list, add or remove?");
	program_refuses("ctl bp dance", "bp dance: it must be one of list, add, remove");
	program_refuses("ctl bp list 0", "one word too many");
	program_refuses("ctl bp add", "the watch is missing");
	program_refuses("ctl bp remove 0 1", "one word too many");
	program_refuses("ctl --pid x status", "--pid x: it must be a number from 1 to");
	program_refuses("ctl --pid 1 --name x status", "exclude each other");
	program_refuses("ctl --name x list", "takes no --pid");
	program_refuses("run --kernel x --name 7up", "a letter first");
	program_refuses("run --kernel x --name a --no-control", "exclude each other");
}
