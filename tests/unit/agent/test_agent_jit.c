/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JIT maps from the process that writes them to the names at an address: the
 * agent's program on this machine's kernel, which then is guest and host in
 * one, and tests/rig/guest/userland/jit; and messages of a hostile guest.
 */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "shared/unconst.h"
#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"
#include "vmm/agent/agent_jit.h"
#include "vmm/guest/linux/perf_map.h"
#include "vmm/record/jit_code.h"

#define PROGRAM "build/rig/userland/jit"
#define HOT_JS  "tests/rig/guest/userland/hot.js"

#define SECOND 1000000000ull

struct fixture {
	pid_t process;
	struct ring *ring;
	struct agent *agent;
	struct jit_code *code;
	uint64_t known; /* ns: the latest round */
	int channel;    /* the host's end of it, so that the agent's program outlives the session */
};

static bool set_up(struct fixture *fixture)
{
	struct agent_options options = { .tsc_known = true };
	int fds[2];

	*fixture = (struct fixture){ .code = jit_code_new(NULL) };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) ||
	    ring_create(&fixture->ring, 16 << 20))
		return false;
	fixture->process = agent_process_run(fds[1], true);
	close(fds[1]);
	fixture->channel = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
	options.fd = fds[0];
	options.ring = fixture->ring;
	return !agent_start(&fixture->agent, &options);
}

/* After agent_stop(). */
static void tear_down_process(struct fixture *fixture)
{
	kill(fixture->process, SIGTERM);
	waitpid(fixture->process, NULL, 0);
	close(fixture->channel);
	ring_destroy(fixture->ring);
	jit_code_free(fixture->code);
}

static void tear_down(struct fixture *fixture)
{
	agent_stop(fixture->agent, NULL);
	tear_down_process(fixture);
}

static void take_records(struct fixture *fixture)
{
	const struct ring_record *record;

	while ((record = ring_read(fixture->ring))) {
		const struct sideband *sideband = (const struct sideband *)record->payload;

		if (record->type != RECORD_SIDEBAND)
			continue;
		jit_code_apply(fixture->code, sideband);
		if (sideband->type == SIDEBAND_ROUND)
			fixture->known = sideband->time;
	}
	ring_read_done(fixture->ring);
}

/* Waits until the agent has reported everything before TIME, at most 20 s. */
static bool wait_until_known(struct fixture *fixture, uint64_t time)
{
	for (int i = 0; i < 2000 && fixture->known < time; i++) {
		take_records(fixture);
		usleep(10000);
	}
	return fixture->known >= time;
}

static bool wait_for_process(struct fixture *fixture, uint32_t pid)
{
	for (int i = 0; i < 2000 && !jit_code_has(fixture->code, pid); i++) {
		take_records(fixture);
		usleep(10000);
	}
	return jit_code_has(fixture->code, pid);
}

static const char *name_at(struct fixture *fixture, pid_t pid, uint64_t address, uint64_t time)
{
	struct jit_function function;

	return jit_code_find(fixture->code, (uint32_t)pid, address, time, &function) ? function.name
										     : "";
}

/* Has anything been lost, a session begun anew, or the time not been known well, as beside a busy
 * machine? Then what was before has no names. */
static bool is_disturbed(const struct fixture *fixture)
{
	struct agent_statistics statistics;

	agent_statistics(fixture->agent, &statistics);
	return statistics.lost || statistics.sessions > 1 || statistics.imprecise;
}

/* Shows why there may be no symbol. */
static void print_state(const struct fixture *fixture, pid_t pid)
{
	struct agent_statistics statistics;

	agent_statistics(fixture->agent, &statistics);
	printf("process %d %s a map; %llu sessions, %llu events lost, imprecise for %llu ms, known until %lld ms ago\n",
	       pid, jit_code_has(fixture->code, (uint32_t)pid) ? "has" : "has no",
	       (unsigned long long)statistics.sessions, (unsigned long long)statistics.lost,
	       (unsigned long long)statistics.imprecise / 1000000,
	       (long long)(agent_fixture_now() - fixture->known) / 1000000);
}

/*
 * The current symbol. The time until the next read of a map depends on the machine's load, and the
 * symbol is unknown until then, so this waits for it.
 */
static const char *wait_for_name(struct fixture *fixture, pid_t pid, uint64_t address)
{
	uint64_t end = agent_fixture_now() + 60 * SECOND, time;
	const char *name;

	do {
		time = agent_fixture_now();
		wait_until_known(fixture, time + SECOND / 5);
		name = name_at(fixture, pid, address, time);
	} while (!*name && agent_fixture_now() < end);
	if (!*name)
		print_state(fixture, pid);
	return name;
}

static void check_name(struct fixture *fixture, pid_t pid, uint64_t address, uint64_t time,
		       const char *expected)
{
	const char *name = name_at(fixture, pid, address, time);

	if (*name || !is_disturbed(fixture))
		CHECK_STRING(name, expected);
}

/* The whole map of process PID; the caller's to free. */
static struct span read_map(pid_t pid)
{
	char path[64], *text = malloc(1 << 20);
	ssize_t size;
	int fd;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", pid);
	fd = open(path, O_RDONLY);
	size = fd < 0 ? 0 : read(fd, text, 1 << 20);
	close(fd);
	unlink(path);
	return span_of(text, size > 0 ? (size_t)size : 0);
}

TEST(agent_jit, functions_have_symbols_while_the_process_runs_and_after_its_exit)
{
	struct fixture fixture;
	struct perf_map_line line;
	struct span map, rest;
	unsigned int lines = 0;
	pid_t program;
	uint64_t middle;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(set_up(&fixture));
	REQUIRE(wait_until_known(&fixture, 1));
	program = fork();
	if (!program) {
		execl(PROGRAM, PROGRAM, "2000", NULL);
		_exit(127);
	}
	REQUIRE(wait_for_process(&fixture, (uint32_t)program));
	middle = agent_fixture_now();
	waitpid(program, NULL, 0);
	CHECK(wait_until_known(&fixture, agent_fixture_now() + SECOND / 2));
	map = rest = read_map(program);
	while (perf_map_next(&rest, &line)) {
		if (!strncmp(line.name, "hot", 3)) {
			lines++;
			check_name(&fixture, program, line.start, middle, line.name);
			check_name(&fixture, program, line.start + line.length - 1, middle,
				   line.name);
		}
	}
	CHECK_EQUAL(lines, 3);
	free(unconst(map.data));
	tear_down(&fixture);
}

/* The last line of MAP whose name has TEXT in it. */
static bool find_line(struct span map, const char *text, struct perf_map_line *found)
{
	struct perf_map_line line;
	bool any = false;

	while (perf_map_next(&map, &line))
		if (strstr(line.name, text)) {
			*found = line;
			any = true;
		}
	return any;
}

/* V8 writes thousands of lines before it runs the first function of a program. */
TEST(agent_jit, functions_of_node_have_their_names)
{
	static const char *const names[] = { "JS:*hot60 ", "JS:*hot30 ", "JS:*hot10 " };
	char directory[] = "/tmp/kvmscope-test-XXXXXX", script[PATH_MAX], command[64];
	struct fixture fixture;
	struct perf_map_line line;
	struct span map;
	pid_t program;
	uint64_t end;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	if (system("node --version > /dev/null 2>&1"))
		SKIP("node (package nodejs) does not run here");
	REQUIRE(mkdtemp(directory) && realpath(HOT_JS, script));
	REQUIRE(set_up(&fixture));
	REQUIRE(wait_until_known(&fixture, 1));
	program = fork();
	if (!program) {
		/* It writes a log to where it is. */
		if (!chdir(directory))
			execlp("node", "node", "--perf-basic-prof", "--max-inlined-bytecode-size=0",
			       script, "60", NULL);
		_exit(127);
	}
	REQUIRE(wait_for_process(&fixture, (uint32_t)program));
	waitpid(program, NULL, 0);
	end = agent_fixture_now();
	CHECK(wait_until_known(&fixture, end + SECOND / 2));
	snprintf(command, sizeof(command), "rm -r %s", directory);
	CHECK_EQUAL(system(command), 0);
	map = read_map(program);
	for (int i = 0; i < 3; i++) {
		REQUIRE(find_line(map, names[i], &line));
		check_name(&fixture, program, line.start, end - SECOND / 4, line.name);
	}
	free(unconst(map.data));
	tear_down(&fixture);
}

/* Executable memory, and a file with lines for it in /tmp. */
static pid_t run_with_map(const char *text, bool before)
{
	pid_t child = fork();
	char path[64];
	int fd;

	if (child)
		return child;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	if (!before) {
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (fd < 0 || write(fd, text, strlen(text)) < 0)
			_exit(1);
	}
	mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pause();
	_exit(0);
}

static void end_process(pid_t pid)
{
	char path[64];

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", pid);
	unlink(path);
}

TEST(agent_jit, a_map_that_loses_its_beginning_is_sent_again)
{
	struct fixture fixture;
	char path[64];
	pid_t child;
	int fd;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(set_up(&fixture));
	REQUIRE(wait_until_known(&fixture, 1));
	child = run_with_map("1000 100 first\n", false);
	REQUIRE(wait_for_process(&fixture, (uint32_t)child));
	CHECK_STRING(wait_for_name(&fixture, child, 0x1000), "first");
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", child);
	fd = open(path, O_WRONLY | O_TRUNC);
	CHECK(write(fd, "1000 80 other_name\n", 19) == 19);
	close(fd);
	CHECK_STRING(wait_for_name(&fixture, child, 0x1000), "other_name");
	end_process(child);
	tear_down(&fixture);
}

/* A thread gets its name COUNT times on each CPU. */
static void fill_rings(int count)
{
	cpu_set_t all, one;
	char name[16];

	sched_getaffinity(0, sizeof(all), &all);
	prctl(PR_GET_NAME, name);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (!CPU_ISSET(cpu, &all) || sched_setaffinity(0, sizeof(one), &one))
			continue;
		for (int i = 0; i < count; i++)
			prctl(PR_SET_NAME, name);
	}
	sched_setaffinity(0, sizeof(all), &all);
}

static bool loses(struct fixture *fixture)
{
	struct agent_statistics statistics;

	agent_statistics(fixture->agent, &statistics);
	return statistics.lost > 0;
}

/* The agent reports all processes again as if they had just executed their programs, after their
 * maps were written. */
TEST(agent_jit, a_map_is_sent_again_after_a_loss)
{
	struct fixture fixture;
	pid_t child;
	int status;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(set_up(&fixture));
	REQUIRE(wait_until_known(&fixture, 1));
	child = run_with_map("1000 100 first\n", false);
	REQUIRE(wait_for_process(&fixture, (uint32_t)child));
	/*
	 * Each CPU loses events since its last one, so an idle CPU could have lost an execve before
	 * the map was scanned.
	 */
	fill_rings(1);
	REQUIRE(wait_until_known(&fixture, agent_fixture_now()));
	kill(fixture.process, SIGSTOP);
	waitpid(fixture.process, &status, WUNTRACED);
	fill_rings(10000); /* more than they hold */
	kill(fixture.process, SIGCONT);
	for (uint64_t end = agent_fixture_now() + 60 * SECOND;
	     !loses(&fixture) && agent_fixture_now() < end;) {
		fill_rings(1); /* the kernel reports a loss before the next event */
		take_records(&fixture);
		usleep(10000);
	}
	CHECK(loses(&fixture));
	CHECK_STRING(wait_for_name(&fixture, child, 0x1000), "first");
	end_process(child);
	tear_down(&fixture);
}

/* Another user's file, and a file of an earlier process with the same pid. */
TEST(agent_jit, only_the_processes_own_map_is_taken)
{
	struct fixture fixture;
	char paths[2][64];
	pid_t children[2];
	int fd;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	if (getuid())
		SKIP("files of other users need root");
	REQUIRE(set_up(&fixture));
	REQUIRE(wait_until_known(&fixture, 1));
	for (int i = 0; i < 2; i++) {
		children[i] = run_with_map("", true);
		snprintf(paths[i], sizeof(paths[i]), "/tmp/perf-%d.map", children[i]);
	}
	fd = open(paths[0], O_WRONLY | O_CREAT | O_EXCL, 0600);
	CHECK(write(fd, "1000 100 of_another_user\n", 25) == 25);
	CHECK(!fchown(fd, 65534, 65534));
	close(fd);
	CHECK(!symlink("/etc/passwd", paths[1]));
	CHECK(wait_until_known(&fixture, agent_fixture_now() + SECOND));
	for (int i = 0; i < 2; i++) {
		CHECK(!jit_code_has(fixture.code, (uint32_t)children[i]));
		end_process(children[i]);
	}
	tear_down(&fixture);
}

/* Does the agent have a file, or a directory, of this name open? */
static bool has_open(const struct fixture *fixture, const char *name)
{
	char path[64], target[64];
	bool found = false;

	for (int fd = 0; fd < 256 && !found; fd++) {
		ssize_t size;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", fixture->process, fd);
		size = readlink(path, target, sizeof(target) - 1);
		target[size > 0 ? size : 0] = '\0';
		found = !strcmp(target, name);
	}
	return found;
}

/* Or something of process PID? */
static bool holds(const struct fixture *fixture, pid_t pid)
{
	char process[32], ended[48];

	snprintf(process, sizeof(process), "/proc/%d", pid);
	snprintf(ended, sizeof(ended), "%s (deleted)", process);
	return has_open(fixture, process) || has_open(fixture, ended);
}

/* Which program runs is remembered, but its container may be ended. */
TEST(agent_jit, no_file_system_is_held_without_a_request)
{
	struct fixture fixture;
	pid_t child;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(set_up(&fixture));
	REQUIRE(wait_until_known(&fixture, 1));
	child = run_with_map("1000 100 first\n", false);
	REQUIRE(wait_for_process(&fixture, (uint32_t)child));
	CHECK(has_open(&fixture, "/tmp"));
	agent_stop(fixture.agent, NULL);
	for (int i = 0; i < 2000 && has_open(&fixture, "/tmp"); i++)
		usleep(10000);
	CHECK(!has_open(&fixture, "/tmp"));
	CHECK(holds(&fixture, child));
	end_process(child);
	tear_down_process(&fixture);
}

/* The new file may not be read: nothing more is reported of it. */
TEST(agent_jit, a_process_with_a_deleted_map_is_followed_until_its_exit)
{
	struct fixture fixture;
	char path[64];
	pid_t child;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(set_up(&fixture));
	REQUIRE(wait_until_known(&fixture, 1));
	child = run_with_map("1000 100 first\n", false);
	REQUIRE(wait_for_process(&fixture, (uint32_t)child));
	CHECK(holds(&fixture, child));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", child);
	CHECK(!unlink(path) && !symlink("/etc/passwd", path));
	CHECK(wait_until_known(&fixture, agent_fixture_now() + SECOND / 5));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	for (int i = 0; i < 1500 && holds(&fixture, child); i++) {
		take_records(&fixture);
		usleep(10000);
	}
	CHECK(!holds(&fixture, child));
	unlink(path);
	tear_down(&fixture);
}

/* --- a hostile guest ------------------------------------------------------------ */

struct taken {
	unsigned int maps, lines;
};

static void take(void *context, struct sideband *record)
{
	struct taken *taken = context;

	CHECK(sideband_check(span_of(record, record->size)) == record);
	taken->maps += record->type == SIDEBAND_JIT_MAP;
	taken->lines += record->type == SIDEBAND_JIT_CODE;
}

static bool give(const struct agent_jit_map *map, const char *lines, size_t size,
		 struct taken *taken)
{
	uint64_t bytes[64] = { 0 };
	struct agent_message *message = (struct agent_message *)bytes;

	*message = (struct agent_message){
		.size = (uint32_t)(sizeof(*message) + sizeof(*map) + size + 7) / 8 * 8,
		.type = AGENT_JIT_MAP
	};
	memcpy(message->payload, map, sizeof(*map));
	memcpy(message->payload + sizeof(*map), lines, size);
	*taken = (struct taken){ 0 };
	return agent_jit_decode(message, take, taken);
}

TEST(agent_jit, a_hostile_guest_sends_invalid_maps)
{
	static const char lines[] =
		"1000 10 a\nffffffffffffffff 10 b\n0 0 c\n2000 10 d\n3000 10 cut";
	struct agent_jit_map map = { .since = 1, .time = 2, .pid = 7, .size = sizeof(lines) - 1 };
	struct taken taken;

	CHECK(give(&map, lines, sizeof(lines) - 1, &taken));
	CHECK_EQUAL(taken.maps, 1);
	CHECK_EQUAL(taken.lines, 2);
	map.size = 1000;
	CHECK(!give(&map, lines, sizeof(lines) - 1, &taken));
	CHECK_EQUAL(taken.maps, 0);
	map.size = 0;
	map.pid = 0;
	CHECK(!give(&map, lines, 0, &taken));
	map.pid = UINT32_MAX;
	CHECK(!give(&map, lines, 0, &taken));
	map.pid = 7;
	map.since = 3;
	CHECK(!give(&map, lines, 0, &taken));
}

static void see_mapping(struct agent_jit *jit, uint32_t pid, const char *name, uint64_t time)
{
	uint64_t bytes[32] = { 0 };
	struct sideband_mmap *mmap = (struct sideband_mmap *)bytes;

	mmap->head = (struct sideband){ .size = sideband_size(sizeof(*mmap), name),
					.type = SIDEBAND_MMAP,
					.pid = pid,
					.tid = pid };
	mmap->start = 4096;
	mmap->length = 4096;
	mmap->prot = PROT_EXEC;
	strcpy(mmap->name, name);
	agent_jit_observe(jit, &mmap->head, time);
}

TEST(agent_jit, processes_with_code_in_no_file_are_asked_for_once)
{
	struct agent_jit jit = { 0 };
	struct sideband_comm exec = {
		.head = { .type = SIDEBAND_COMM, .flags = SIDEBAND_COMM_EXEC, .pid = 5 }
	};

	see_mapping(&jit, 4, "/lib/libc.so.6", 10);
	see_mapping(&jit, 5, "//anon", 10);
	see_mapping(&jit, 5, "//anon", 10);
	see_mapping(&jit, 6, "/memfd:doublemapper (deleted)", 10);
	CHECK_EQUAL(agent_jit_next(&jit), 5);
	CHECK_EQUAL(agent_jit_next(&jit), 6);
	CHECK_EQUAL(agent_jit_next(&jit), 0);
	agent_jit_observe(&jit, &exec.head, 20);
	see_mapping(&jit, 5, "[anon:code]", 30);
	CHECK_EQUAL(agent_jit_next(&jit), 5);
	/* Any number of them: the oldest go. */
	for (uint32_t pid = 100; pid < 100 + 3 * AGENT_JIT_PROCESSES_MAX; pid++)
		see_mapping(&jit, pid, "//anon", 30);
	for (uint32_t i = 0; i < AGENT_JIT_PROCESSES_MAX; i++)
		CHECK(agent_jit_next(&jit) >= 100);
	CHECK_EQUAL(agent_jit_next(&jit), 0);
}

/* The fork on one CPU, the mapping on another, whose ring is read first. */
TEST(agent_jit, mappings_are_of_the_program_that_was_there_at_their_time)
{
	struct agent_jit jit = { 0 };
	struct sideband_fork fork = { .head = { .type = SIDEBAND_FORK, .pid = 5 },
				      .parent_pid = 4 };
	struct sideband_comm exec = {
		.head = { .type = SIDEBAND_COMM, .flags = SIDEBAND_COMM_EXEC, .pid = 5 }
	};

	see_mapping(&jit, 5, "//anon", 20);
	agent_jit_observe(&jit, &fork.head, 10);
	CHECK_EQUAL(agent_jit_next(&jit), 5);
	CHECK_EQUAL(agent_jit_next(&jit), 0);
	see_mapping(&jit, 5, "//anon", 40);
	CHECK_EQUAL(agent_jit_next(&jit), 0);
	agent_jit_observe(&jit, &exec.head, 30);
	CHECK_EQUAL(agent_jit_next(&jit), 5);
	agent_jit_observe(&jit, &exec.head, 50);
	CHECK_EQUAL(agent_jit_next(&jit), 0);
}
