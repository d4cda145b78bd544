/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that the agent reports: before, during and after a loss of the kernel's events. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"

/* A mapping of this process at START. */
struct wanted {
	uint64_t start;
	uint64_t time;
	uint8_t build_id_size;
};

static bool is_our_mapping(const struct sideband *record, void *context)
{
	const struct sideband_mmap *mapping = (const void *)record;
	struct wanted *wanted = context;

	if (record->type != SIDEBAND_MMAP || record->pid != (uint32_t)getpid() ||
	    mapping->start > wanted->start || wanted->start >= mapping->start + mapping->length)
		return false;
	wanted->time = record->time;
	wanted->build_id_size = mapping->build_id_size;
	return true;
}

TEST(guest_agent, reports_earlier_processes_and_events_with_their_times)
{
	struct wanted own = { .start = (uintptr_t)agent_process_run }, new = { 0 };
	struct agent_statistics statistics;
	uint64_t begin = agent_fixture_now(), before, after;
	struct agent_fixture fixture;
	void *mapping;
	int file;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(agent_fixture_find(&fixture, is_our_mapping, &own));
	CHECK(own.time > begin && own.time < agent_fixture_now());
	CHECK_EQUAL(own.build_id_size, 20);
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));

	file = open(AGENT, O_RDONLY);
	before = agent_fixture_now();
	mapping = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 4096);
	after = agent_fixture_now();
	close(file);
	new.start = (uintptr_t)mapping;
	CHECK(agent_fixture_find(&fixture, is_our_mapping, &new));
	agent_statistics(fixture.agent, &statistics);
	/* Two clocks that are one: the error is all there is between them. */
	if (new.time + statistics.clock_error + 200000 < before ||
	    new.time > after + statistics.clock_error + 200000)
		FAIL_TEST("mapped from %llu to %llu, reported at %llu with an error of %llu ns",
			  (unsigned long long)before, (unsigned long long)after,
			  (unsigned long long)new.time, (unsigned long long)statistics.clock_error);
	munmap(mapping, 4096);
	agent_fixture_tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.sessions, 1);
	CHECK_EQUAL(statistics.refused, 0);
	CHECK_EQUAL(statistics.unstable, 0);
	CHECK_EQUAL(statistics.clock_jumps, 0);
	CHECK(statistics.records > 20);
	CHECK(statistics.features & AGENT_FEATURE_EVENTS);
}

/* A program that runs for some time, and then no more. */
struct brief {
	pid_t pid;
	uint64_t before; /* it runs the program */
	uint64_t begun;  /* time of its latest reported execve; 0: none */
	uint64_t mapped; /* time of the reported mapping of its program, */
	uint8_t build_id_size;
	unsigned int mappings; /* reported after that */
	bool program_first, named;
	bool old; /* its parent's mappings are reported for it */
};

static bool follows_brief(const struct sideband *record, void *context)
{
	const struct sideband_mmap *mapping = (const void *)record;
	const struct sideband_comm *comm = (const void *)record;
	struct brief *brief = context;

	if (record->pid != (uint32_t)brief->pid)
		return false;
	if (record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC) {
		brief->begun = record->time;
		brief->mapped = brief->mappings = 0;
	}
	if (record->type == SIDEBAND_COMM && *comm->comm)
		brief->named = !strcmp(comm->comm, "sleep");
	if (record->type == SIDEBAND_MMAP && !brief->mapped && strstr(mapping->name, "/sleep")) {
		brief->mapped = record->time;
		brief->build_id_size = mapping->build_id_size;
		brief->program_first = !brief->mappings;
	}
	brief->mappings += record->type == SIDEBAND_MMAP;
	brief->old |= record->type == SIDEBAND_FORK;
	return record->type == SIDEBAND_EXIT;
}

static void run_brief(struct brief *brief)
{
	brief->before = agent_fixture_now();
	brief->pid = fork();
	if (!brief->pid) {
		execlp("sleep", "sleep", "1.5", NULL);
		_exit(127);
	}
}

/* Is there a process connector that this user may listen to? */
static bool connector_allowed(const struct agent_statistics *statistics)
{
	return statistics->features & AGENT_FEATURE_CONNECTOR;
}

static bool is_mapping_of(const struct sideband *record, void *context)
{
	return record->type == SIDEBAND_MMAP && record->pid == *(const uint32_t *)context;
}

/* A process that runs no program of its own. */
static void check_forked(struct agent_fixture *fixture)
{
	pid_t child = fork();
	uint32_t pid = (uint32_t)child;

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
	}
	CHECK(agent_fixture_find(fixture, is_mapping_of, &pid));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* By netlink and /proc: later, with what was mapped by then, and nothing of what was before. */
TEST(guest_agent, reports_processes_without_perf_events)
{
	struct wanted own = { .start = (uintptr_t)agent_process_run };
	struct agent_statistics statistics;
	struct brief brief = { .before = 0 };
	struct agent_fixture fixture;

	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITHOUT_EVENTS));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_is_answered));
	agent_statistics(fixture.agent, &statistics);
	CHECK_EQUAL(statistics.error, -EACCES);
	CHECK(!(statistics.features & AGENT_FEATURE_EVENTS));
	if (!connector_allowed(&statistics)) {
		agent_fixture_tear_down(&fixture, NULL);
		SKIP("no process connector here (CONFIG_PROC_EVENTS), or this user may not listen to it");
	}
	CHECK(agent_fixture_find(&fixture, is_our_mapping, &own));
	CHECK_EQUAL(own.build_id_size, 20);
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
	run_brief(&brief);
	CHECK(agent_fixture_find(&fixture, follows_brief, &brief));
	waitpid(brief.pid, NULL, 0);
	CHECK(brief.begun > brief.before);
	CHECK(brief.mapped >= brief.begun);
	CHECK(brief.named);
	CHECK(brief.program_first);
	CHECK(brief.build_id_size == 20);
	CHECK(!brief.old);
	check_forked(&fixture);
	agent_fixture_tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.sessions, 1);
	CHECK_EQUAL(statistics.refused, 0);
}

#define RESERVED (1u << 20)

/* More mappings of code on each CPU than its ring of events holds. */
static void overflow_rings(int file)
{
	cpu_set_t all, one;

	sched_getaffinity(0, sizeof(all), &all);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (!CPU_ISSET(cpu, &all) || sched_setaffinity(0, sizeof(one), &one))
			continue;
		for (int i = 0; i < 3000; i++)
			munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 4096),
			       4096);
	}
	sched_setaffinity(0, sizeof(all), &all);
}

struct gap {
	struct wanted mapping;
	uint64_t lost; /* time of the first word of it */
	bool anew;     /* this process is reported from its start */
};

static bool fills_gap(const struct sideband *record, void *context)
{
	struct gap *gap = context;

	if (record->type == SIDEBAND_LOST && !gap->lost)
		gap->lost = record->time;
	if (record->type == SIDEBAND_COMM && record->pid == (uint32_t)getpid())
		gap->anew |= !!(record->flags & SIDEBAND_COMM_EXEC);
	return is_our_mapping(record, &gap->mapping);
}

/* While the agent is stopped, the kernel's rings are full: later mappings have no event. */
TEST(guest_agent, reports_lost_state_again)
{
	int file = open(AGENT, O_RDONLY | O_CLOEXEC), status;
	struct agent_statistics statistics;
	struct gap gap = { .lost = 0 };
	struct agent_fixture fixture;
	uint8_t *reserved;
	uint64_t before;
	void *mapping;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	reserved = mmap(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
	kill(fixture.process, SIGSTOP);
	waitpid(fixture.process, &status, WUNTRACED);
	overflow_rings(file);
	before = agent_fixture_now();
	mapping = mmap(reserved + RESERVED / 2, 4096, PROT_READ | PROT_EXEC,
		       MAP_PRIVATE | MAP_FIXED, file, 4096);
	gap.mapping.start = (uintptr_t)mapping;
	kill(fixture.process, SIGCONT);
	CHECK(agent_fixture_find(&fixture, fills_gap, &gap));
	CHECK(gap.lost && gap.lost < before);
	CHECK(gap.mapping.time > before);
	CHECK_EQUAL(gap.mapping.build_id_size, 20);
	munmap(reserved, RESERVED);
	close(file);
	agent_fixture_tear_down(&fixture, &statistics);
	/* After 5 s of silence a new session reports. */
	CHECK(gap.anew || statistics.sessions > 1);
	CHECK_EQUAL(statistics.refused, 0);
}

/* What the snapshot reports for two processes that have the file PATH mapped. */
struct reported_processes {
	const char *path;
	struct reported_process {
		pid_t pid;
		char name[16];
		uint8_t build_id_size, build_id[SIDEBAND_BUILD_ID_MAX];
	} of[2];
};

static bool reports_processes(const struct sideband *record, void *context)
{
	const struct sideband_mmap *mapping = (const void *)record;
	const struct sideband_comm *comm = (const void *)record;
	struct reported_processes *reported = context;

	for (int i = 0; i < 2; i++) {
		struct reported_process *process = &reported->of[i];

		if (record->pid != (uint32_t)process->pid)
			continue;
		if (record->type == SIDEBAND_COMM)
			snprintf(process->name, sizeof(process->name), "%s", comm->comm);
		if (record->type != SIDEBAND_MMAP || strcmp(mapping->name, reported->path) != 0)
			continue;
		process->build_id_size = mapping->build_id_size;
		memcpy(process->build_id, mapping->build_id, sizeof(process->build_id));
	}
	return reported->of[0].build_id_size && reported->of[1].build_id_size;
}

#define ODD_NAME "a) R (b 1 2"

/* A process that has the file at PATH mapped, but, if OTHER is given, sees that one there. */
static pid_t run_mapper(const char *path, const char *other)
{
	int ready[2];
	pid_t child;
	char byte = 0;

	if (pipe(ready))
		return -1;
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, ODD_NAME);
		if (other &&
		    (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		     mount(other, path, NULL, MS_BIND, NULL)))
			_exit(126);
		if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(path, O_RDONLY), 0) ==
			    MAP_FAILED ||
		    write(ready[1], &byte, 1) != 1)
			_exit(126);
		pause();
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1) {
		waitpid(child, NULL, 0);
		child = -1;
	}
	close(ready[0]);
	return child;
}

/* Two processes have two files at one path, and a name that is hard to read where /proc has it. */
TEST(guest_agent, reports_the_file_in_each_process_root)
{
	char path[PATH_MAX], other[PATH_MAX];
	struct reported_processes reported = { .path = path };
	struct agent_fixture fixture;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	/* A system's programs may all be one file. */
	REQUIRE(realpath(AGENT, path) && realpath("/proc/self/exe", other));
	reported.of[0].pid = run_mapper(path, NULL);
	reported.of[1].pid = run_mapper(path, other);
	if (reported.of[0].pid > 0 && reported.of[1].pid > 0 &&
	    agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS)) {
		CHECK(agent_fixture_find(&fixture, reports_processes, &reported));
		agent_fixture_tear_down(&fixture, NULL);
		CHECK(memcmp(reported.of[0].build_id, reported.of[1].build_id,
			     SIDEBAND_BUILD_ID_MAX) != 0);
	}
	for (int i = 0; i < 2; i++) {
		if (reported.of[i].pid < 0)
			SKIP("this user may not mount in a namespace of its own");
		CHECK_STRING(reported.of[i].name, ODD_NAME);
		kill(reported.of[i].pid, SIGKILL);
		waitpid(reported.of[i].pid, NULL, 0);
	}
}

/*
 * A newline in a path is four bytes in /proc/PID/maps. The agent reads the first 4399 bytes of a
 * line; the rest begins at REST_BEGINS.
 */
#define COLUMN_OF_PATH 73
#define REST_BEGINS    4399

static size_t length_in_maps(const char *path)
{
	size_t length = COLUMN_OF_PATH;

	while (*path)
		length += *path++ == '\n' ? 4 : 1;
	return length;
}

/* A program at a path whose line is too long for the agent, and whose rest looks like a mapping. */
static bool make_program_of_long_name(const char *directory, char path[PATH_MAX])
{
	size_t length = (size_t)snprintf(path, PATH_MAX, "%s", directory);
	bool made;
	int file;

	while (length_in_maps(path) + 1 + 4 * 50 + 2 < REST_BEGINS) {
		path[length++] = '/';
		memset(path + length, '\n', 50);
		path[length += 50] = '\0';
		if (mkdir(path, 0700))
			return false;
	}
	path[length++] = '/';
	path[length] = '\0';
	while (length_in_maps(path) < REST_BEGINS - 1) {
		path[length++] = 'a';
		path[length] = '\0';
	}
	if (mkdir(path, 0700))
		return false;
	snprintf(path + length, PATH_MAX - length, "/ abx1 ");
	file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	made = file >= 0 && !ftruncate(file, 4096) &&
	       length_in_maps(path) == REST_BEGINS + strlen(" abx1 ");
	if (file >= 0)
		close(file);
	return made;
}

/* A part of a file's name is not read as a line of /proc/PID/maps. */
TEST(guest_agent, reads_only_whole_lines_of_mappings)
{
	char directory[] = "/tmp/kvmscope-long-XXXXXX", path[PATH_MAX], command[64];
	struct agent_fixture fixture;
	pid_t mapper;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(mkdtemp(directory));
	CHECK(make_program_of_long_name(directory, path));
	mapper = run_mapper(path, NULL);
	REQUIRE(mapper > 0);
	if (agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS)) {
		struct agent_statistics statistics;

		CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
		agent_fixture_tear_down(&fixture, &statistics);
		CHECK_EQUAL(statistics.sessions, 1);
	}
	kill(mapper, SIGKILL);
	waitpid(mapper, NULL, 0);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	CHECK_EQUAL(system(command), 0);
}

static bool is_our_cgroup(const struct sideband *record, void *context)
{
	const struct sideband_cgroup *cgroup = (const void *)record;

	if (record->type != SIDEBAND_CGROUP || record->pid != (uint32_t)getpid())
		return false;
	snprintf(context, 4096, "%s", cgroup->path);
	return true;
}

static bool is_below_root(const char *lines, const char *controllers)
{
	const char *line = strstr(lines, controllers);

	return line && line[strlen(controllers)] != '\n';
}

/* One of those that this process is in, and not the root where there is a better one. */
TEST(guest_agent, reports_the_cgroup_of_a_process)
{
	char reported[4096] = "", line[4200], lines[8192] = "";
	struct agent_fixture fixture;
	FILE *file;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	file = fopen("/proc/self/cgroup", "re");
	REQUIRE(file && fread(lines, 1, sizeof(lines) - 1, file));
	fclose(file);
	REQUIRE(agent_fixture_set_up(&fixture, true));
	CHECK(agent_fixture_find(&fixture, is_our_cgroup, reported));
	agent_fixture_tear_down(&fixture, NULL);
	snprintf(line, sizeof(line), ":%s\n", reported);
	if (!strstr(lines, line))
		FAIL_TEST("reported in %s, which is not in\n%s", reported, lines);
	CHECK(reported[1] || !(is_below_root(lines, "memory:/") || is_below_root(lines, "0::/")));
}

struct reported_exec {
	uint32_t pid;
	uint64_t exec, cgroup; /* times */
};

static bool reports_cgroup_of_exec(const struct sideband *record, void *context)
{
	struct reported_exec *reported = context;

	if (record->pid != reported->pid)
		return false;
	if (record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC)
		reported->exec = record->time;
	if (record->type == SIDEBAND_CGROUP && reported->exec)
		reported->cgroup = record->time;
	return reported->cgroup;
}

/* Not from when it was read: samples from its beginning on are of its cgroup. */
TEST(guest_agent, reports_the_cgroup_of_a_program_from_its_start)
{
	struct reported_exec reported = { 0 };
	struct agent_fixture fixture;
	pid_t child;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
	child = fork();
	if (!child) {
		execlp("sleep", "sleep", "100", NULL);
		_exit(127);
	}
	reported.pid = (uint32_t)child;
	CHECK(agent_fixture_find(&fixture, reports_cgroup_of_exec, &reported));
	CHECK_EQUAL(reported.cgroup, reported.exec);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	agent_fixture_tear_down(&fixture, NULL);
}
