/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of the agent's protocol: the agent's program on this machine's
 * kernel, which then is guest and host in one, and hostile ends played by the test.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <linux/vm_sockets.h>

#include "shared/sample.h"
#include "shared/sideband.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/agent.h"
#include "vmm/guest/told_kernel.h"
#include "vmm/profile/elf_symbols.h"
#include "vmm/profile/image_file.h"

#define AGENT "build/agent/kvmscope-agent"

struct fixture {
	pid_t process; /* 0: the guest's end is the test's */
	int guest;     /* that end, or -1 */
	struct ring *ring;
	struct agent *agent;
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* As the agent's own: perf_event_open(2) may be forbidden here. */
static bool events_allowed(void)
{
	struct perf_event_attr attribute = { .type = PERF_TYPE_SOFTWARE,
					     .config = PERF_COUNT_SW_DUMMY,
					     .size = sizeof(attribute) };
	int fd = (int)syscall(SYS_perf_event_open, &attribute, -1, 0, -1, 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* From here on, as in a container or under kernel.perf_event_paranoid=4 of some. */
static void forbid_events(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(program) / sizeof(program[0]), program };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		_exit(126);
}

/* A directory: what the next agent has as /proc and as /sys/module; NULL: the kernel's own. */
static const char *kernel_files;

static bool see(const char *name, const char *place)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", kernel_files, name);
	return !mount(path, place, NULL, MS_BIND, NULL);
}

/* From here on. */
static bool see_kernel_files(void)
{
	return !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       see("proc", "/proc") && see("module", "/sys/module");
}

static pid_t run_agent(int fd, bool events)
{
	char number[16];
	pid_t child = fork();

	if (child)
		return child;
	if (kernel_files && !see_kernel_files())
		_exit(126);
	if (!events)
		forbid_events();
	snprintf(number, sizeof(number), "%d", fd);
	fcntl(fd, F_SETFD, 0);
	execl(AGENT, AGENT, "--fd", number, NULL);
	_exit(127);
}

/* Who is at the guest's end. */
enum end { TEST_ITSELF, AGENT_WITH_EVENTS, AGENT_WITHOUT_EVENTS };

static bool set_up(struct fixture *fixture, enum end end)
{
	struct agent_options options = { 0 };
	int fds[2];

	*fixture = (struct fixture){ .guest = -1 };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) ||
	    ring_create(&fixture->ring, 4 << 20))
		return false;
	if (end != TEST_ITSELF) {
		fixture->process = run_agent(fds[1], end == AGENT_WITH_EVENTS);
		close(fds[1]);
	} else {
		fixture->guest = fds[1];
	}
	options.fd = fds[0];
	options.ring = fixture->ring;
	options.table_memory = 64 << 20;
	options.tsc_known = end != TEST_ITSELF; /* its kernel is ours: the offset is 0 */
	return !agent_start(&fixture->agent, &options);
}

static void tear_down(struct fixture *fixture, struct agent_statistics *statistics)
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

/* Waits for CONDITION of the statistics, 20 s at most. */
static bool wait_for(struct fixture *fixture, bool (*condition)(const struct agent_statistics *))
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

static bool is_answered(const struct agent_statistics *statistics)
{
	return statistics->open;
}

static bool snapshot_is_done(const struct agent_statistics *statistics)
{
	return statistics->snapshot_done;
}

/* Reads the ring until a record for which FOUND is true, 20 s at most. */
static bool find(struct fixture *fixture, bool (*found)(const struct sideband *, void *), void *context)
{
	const struct ring_record *record;

	for (int i = 0; i < 2000; i++) {
		while ((record = ring_read(fixture->ring))) {
			if (record->type != RECORD_SIDEBAND)
				continue;
			CHECK(sideband_check(span_of(record->payload, record->size - sizeof(*record))) !=
			      NULL);
			if (found((const struct sideband *)record->payload, context))
				return true;
		}
		ring_read_done(fixture->ring);
		usleep(10000);
	}
	return false;
}

/* What is looked for: a mapping of this process at START. */
struct wanted {
	uint64_t start;
	uint64_t time;
	uint8_t build_id_size;
	bool program;
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
	wanted->program = record->flags & SIDEBAND_MMAP_PROGRAM;
	return true;
}

TEST(guest_agent, tells_what_ran_before_and_what_happens_with_its_time)
{
	struct wanted own = { .start = (uintptr_t)run_agent }, new = { 0 };
	struct agent_statistics statistics;
	uint64_t begin = now(), before, after;
	struct fixture fixture;
	void *mapping;
	int file;

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(find(&fixture, is_our_mapping, &own));
	CHECK(own.time > begin && own.time < now());
	CHECK_EQUAL(own.build_id_size, 20);
	CHECK(own.program);
	CHECK(wait_for(&fixture, snapshot_is_done));

	file = open(AGENT, O_RDONLY);
	before = now();
	mapping = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 4096);
	after = now();
	close(file);
	new.start = (uintptr_t)mapping;
	CHECK(find(&fixture, is_our_mapping, &new));
	CHECK(!new.program);
	agent_statistics(fixture.agent, &statistics);
	/* Two clocks that are one: the error is all there is between them. */
	if (new.time + statistics.clock_error + 200000 < before ||
	    new.time > after + statistics.clock_error + 200000)
		FAIL_TEST("mapped from %llu to %llu, told at %llu with an error of %llu ns",
			  (unsigned long long)before, (unsigned long long)after, (unsigned long long)new.time,
			  (unsigned long long)statistics.clock_error);
	munmap(mapping, 4096);
	tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.sessions, 1);
	CHECK_EQUAL(statistics.refused, 0);
	CHECK_EQUAL(statistics.unsteady, 0);
	CHECK_EQUAL(statistics.clock_jumps, 0);
	CHECK(statistics.records > 20);
	CHECK(statistics.features & AGENT_FEATURE_EVENTS);
}

/* A program that runs for some time, and then no more. */
struct brief {
	pid_t pid;
	uint64_t before; /* it runs the program */
	uint64_t begun;  /* when it was told to begin anew for the last time; 0: not */
	uint64_t mapped; /* when it was told to have its program mapped, */
	uint8_t build_id_size;
	bool program, named;
	bool old; /* what it was forked from is told to be mapped in it */
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
		brief->mapped = 0;
	}
	if (record->type == SIDEBAND_COMM && *comm->comm)
		brief->named = !strcmp(comm->comm, "sleep");
	if (record->type == SIDEBAND_MMAP && !brief->mapped && strstr(mapping->name, "/sleep")) {
		brief->mapped = record->time;
		brief->build_id_size = mapping->build_id_size;
		brief->program = record->flags & SIDEBAND_MMAP_PROGRAM;
	}
	brief->old |= record->type == SIDEBAND_FORK;
	return record->type == SIDEBAND_EXIT;
}

static void run_brief(struct brief *brief)
{
	brief->before = now();
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
static void check_forked(struct fixture *fixture)
{
	pid_t child = fork();
	uint32_t pid = (uint32_t)child;

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
	}
	CHECK(find(fixture, is_mapping_of, &pid));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* By netlink and /proc: later, with what was mapped by then, and nothing of what was before. */
TEST(guest_agent, tells_processes_where_its_kernel_allows_no_events)
{
	struct wanted own = { .start = (uintptr_t)run_agent };
	struct agent_statistics statistics;
	struct brief brief = { .before = 0 };
	struct fixture fixture;

	REQUIRE(set_up(&fixture, AGENT_WITHOUT_EVENTS));
	CHECK(wait_for(&fixture, is_answered));
	agent_statistics(fixture.agent, &statistics);
	CHECK_EQUAL(statistics.error, -EACCES);
	CHECK(!(statistics.features & AGENT_FEATURE_EVENTS));
	if (!connector_allowed(&statistics)) {
		tear_down(&fixture, NULL);
		SKIP("no process connector here (CONFIG_PROC_EVENTS), or this user may not listen to it");
	}
	CHECK(find(&fixture, is_our_mapping, &own));
	CHECK(own.program);
	CHECK_EQUAL(own.build_id_size, 20);
	CHECK(wait_for(&fixture, snapshot_is_done));
	run_brief(&brief);
	CHECK(find(&fixture, follows_brief, &brief));
	waitpid(brief.pid, NULL, 0);
	CHECK(brief.begun > brief.before);
	CHECK(brief.mapped >= brief.begun);
	CHECK(brief.named);
	CHECK(brief.program);
	CHECK(brief.build_id_size == 20);
	CHECK(!brief.old);
	check_forked(&fixture);
	tear_down(&fixture, &statistics);
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
			munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 4096), 4096);
	}
	sched_setaffinity(0, sizeof(all), &all);
}

struct gap {
	struct wanted mapping;
	uint64_t lost; /* time of the first word of it */
	bool anew;     /* this process is told of from its begin */
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

/* While the agent stands still its kernel has no room for more: what is mapped then no event tells. */
TEST(guest_agent, tells_anew_what_its_kernel_lost)
{
	int file = open(AGENT, O_RDONLY | O_CLOEXEC), status;
	struct agent_statistics statistics;
	struct gap gap = { .lost = 0 };
	struct fixture fixture;
	uint8_t *reserved;
	uint64_t before;
	void *mapping;

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	reserved = mmap(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(wait_for(&fixture, snapshot_is_done));
	kill(fixture.process, SIGSTOP);
	waitpid(fixture.process, &status, WUNTRACED);
	overflow_rings(file);
	before = now();
	mapping = mmap(reserved + RESERVED / 2, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file,
		       4096);
	gap.mapping.start = (uintptr_t)mapping;
	kill(fixture.process, SIGCONT);
	CHECK(find(&fixture, fills_gap, &gap));
	CHECK(gap.lost && gap.lost < before);
	CHECK(gap.mapping.time > before);
	CHECK_EQUAL(gap.mapping.build_id_size, 20);
	munmap(reserved, RESERVED);
	close(file);
	tear_down(&fixture, &statistics);
	/* After a silence of 5 s it is a new session that tells. */
	CHECK(gap.anew || statistics.sessions > 1);
	CHECK_EQUAL(statistics.refused, 0);
}

/* What the snapshot tells of two processes that have a file at PATH mapped. */
struct told_processes {
	const char *path;
	struct told_process {
		pid_t pid;
		char name[16];
		uint8_t build_id_size, build_id[SIDEBAND_BUILD_ID_MAX];
	} of[2];
};

static bool tells_processes(const struct sideband *record, void *context)
{
	const struct sideband_mmap *mapping = (const void *)record;
	const struct sideband_comm *comm = (const void *)record;
	struct told_processes *told = context;

	for (int i = 0; i < 2; i++) {
		struct told_process *process = &told->of[i];

		if (record->pid != (uint32_t)process->pid)
			continue;
		if (record->type == SIDEBAND_COMM)
			snprintf(process->name, sizeof(process->name), "%s", comm->comm);
		if (record->type != SIDEBAND_MMAP || strcmp(mapping->name, told->path) != 0)
			continue;
		process->build_id_size = mapping->build_id_size;
		memcpy(process->build_id, mapping->build_id, sizeof(process->build_id));
	}
	return told->of[0].build_id_size && told->of[1].build_id_size;
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
		if (other && (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
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
TEST(guest_agent, tells_which_file_is_at_a_path_of_each_process)
{
	char path[PATH_MAX], other[PATH_MAX];
	struct told_processes told = { .path = path };
	struct fixture fixture;

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	/* A system's programs may all be one file. */
	REQUIRE(realpath(AGENT, path) && realpath("/proc/self/exe", other));
	told.of[0].pid = run_mapper(path, NULL);
	told.of[1].pid = run_mapper(path, other);
	if (told.of[0].pid > 0 && told.of[1].pid > 0 && set_up(&fixture, AGENT_WITH_EVENTS)) {
		CHECK(find(&fixture, tells_processes, &told));
		tear_down(&fixture, NULL);
		CHECK(memcmp(told.of[0].build_id, told.of[1].build_id, SIDEBAND_BUILD_ID_MAX) != 0);
	}
	for (int i = 0; i < 2; i++) {
		if (told.of[i].pid < 0)
			SKIP("this user may not mount in a namespace of its own");
		CHECK_STRING(told.of[i].name, ODD_NAME);
		kill(told.of[i].pid, SIGKILL);
		waitpid(told.of[i].pid, NULL, 0);
	}
}

/* A newline in a path is four bytes in /proc/PID/maps; a rest behind the first 4399 bytes of a line begins
 * here. */
#define COLUMN_OF_PATH 73
#define REST_BEGINS    4399

static size_t length_in_maps(const char *path)
{
	size_t length = COLUMN_OF_PATH;

	while (*path)
		length += *path++ == '\n' ? 4 : 1;
	return length;
}

/* A program at a path whose line is too long for the agent, and whose rest reads like a line of code. */
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
	made = file >= 0 && !ftruncate(file, 4096) && length_in_maps(path) == REST_BEGINS + strlen(" abx1 ");
	if (file >= 0)
		close(file);
	return made;
}

/* What a process calls its files is no line of /proc/PID/maps, and no harm to the agent. */
TEST(guest_agent, reads_only_whole_lines_of_mappings)
{
	char directory[] = "/tmp/kvmscope-long-XXXXXX", path[PATH_MAX], command[64];
	struct fixture fixture;
	pid_t mapper;

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(mkdtemp(directory));
	CHECK(make_program_of_long_name(directory, path));
	mapper = run_mapper(path, NULL);
	REQUIRE(mapper > 0);
	if (set_up(&fixture, AGENT_WITH_EVENTS)) {
		struct agent_statistics statistics;

		CHECK(wait_for(&fixture, snapshot_is_done));
		tear_down(&fixture, &statistics);
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
TEST(guest_agent, tells_the_cgroup_of_a_process)
{
	char told[4096] = "", line[4200], lines[8192] = "";
	struct fixture fixture;
	FILE *file;

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	file = fopen("/proc/self/cgroup", "re");
	REQUIRE(file && fread(lines, 1, sizeof(lines) - 1, file));
	fclose(file);
	REQUIRE(set_up(&fixture, true));
	CHECK(find(&fixture, is_our_cgroup, told));
	tear_down(&fixture, NULL);
	snprintf(line, sizeof(line), ":%s\n", told);
	if (!strstr(lines, line))
		FAIL_TEST("told to be in %s, which is not in\n%s", told, lines);
	CHECK(told[1] || !(is_below_root(lines, "memory:/") || is_below_root(lines, "0::/")));
}

struct told_exec {
	uint32_t pid;
	uint64_t exec, cgroup; /* times */
};

static bool tells_cgroup_of_exec(const struct sideband *record, void *context)
{
	struct told_exec *told = context;

	if (record->pid != told->pid)
		return false;
	if (record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC)
		told->exec = record->time;
	if (record->type == SIDEBAND_CGROUP && told->exec)
		told->cgroup = record->time;
	return told->cgroup;
}

/* Not from when it was read: samples from its beginning on are of its cgroup. */
TEST(guest_agent, tells_the_cgroup_of_a_new_program_from_its_beginning)
{
	struct told_exec told = { 0 };
	struct fixture fixture;
	pid_t child;

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(wait_for(&fixture, snapshot_is_done));
	child = fork();
	if (!child) {
		execlp("sleep", "sleep", "100", NULL);
		_exit(127);
	}
	told.pid = (uint32_t)child;
	CHECK(find(&fixture, tells_cgroup_of_exec, &told));
	CHECK_EQUAL(told.cgroup, told.exec);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	tear_down(&fixture, NULL);
}

/* Each of the last two is an end of a table. */
static bool has_two_tables(const struct agent_statistics *statistics)
{
	return statistics->tables.come + statistics->tables.without == 2;
}

static struct symbols *symbols_of(const struct agent_image_table *table)
{
	char path[] = "/tmp/kvmscope-table-XXXXXX";
	struct symbols *symbols = NULL;
	struct bytes file;
	int fd = mkstemp(path);

	image_file_make(&file, span_of(table->bytes, table->size), table->build_id, table->build_id_size);
	CHECK(fd >= 0 && write(fd, file.data, file.size) == (ssize_t)file.size);
	close(fd);
	free(file.data);
	if (elf_symbols_load(&symbols, path, ELF_FILE_OFFSETS, table->build_id, table->build_id_size))
		symbols = NULL;
	unlink(path);
	return symbols;
}

/* This program's own, by what the agent can read of the process; and one of a build that nobody has. */
TEST(guest_agent, tells_the_symbols_of_a_mapped_file)
{
	char path[4096] = "";
	struct agent_image image = { .pid = (uint32_t)getpid(), .path = path };
	struct agent_statistics statistics;
	struct agent_image_table *table;
	struct symbols *symbols, *own = NULL;
	struct fixture fixture;
	struct symbol symbol, expected;

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
	image.build_id_size = (size_t)elf_build_id(path, image.build_id);
	REQUIRE(set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(!agent_want_symbols(fixture.agent, &image));
	image.build_id[0] ^= 1;
	CHECK(!agent_want_symbols(fixture.agent, &image));
	CHECK(wait_for(&fixture, has_two_tables));
	table = agent_take_symbols(fixture.agent);
	tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.tables.come, 1);
	CHECK_EQUAL(statistics.tables.without, 1);
	CHECK_EQUAL(statistics.refused, 0);
	REQUIRE(table != NULL);
	symbols = symbols_of(table);
	free(table);
	REQUIRE(symbols != NULL);
	REQUIRE(!elf_symbols_load(&own, path, ELF_FILE_OFFSETS, NULL, 0));
	REQUIRE(symbols_find_name(own, "run_agent", &expected));
	REQUIRE(symbols_find(symbols, expected.start, &symbol));
	CHECK_STRING(symbol.name, "run_agent");
	CHECK_EQUAL(symbol.start, expected.start);
	CHECK_EQUAL(symbol.end, expected.end);
	symbols_free(symbols);
	symbols_free(own);
}

static bool has_kernel(const struct agent_statistics *statistics)
{
	return statistics->tables.kernels || statistics->tables.kernel_error;
}

/* Until the last question is answered; then it is asked again. */
static bool ask_again(struct fixture *fixture, uint64_t modules_hash)
{
	int error = -EALREADY;

	for (int i = 0; error == -EALREADY && i < 2000; i++, usleep(10000))
		error = agent_want_kernel(fixture->agent, modules_hash);
	return !error;
}

static struct told_kernel *take_told(struct fixture *fixture)
{
	struct agent_image_table *table = agent_take_kernel(fixture->agent);
	struct told_kernel *told = NULL;

	if (table)
		CHECK_EQUAL(told_kernel_create(&told, span_of(table->bytes, table->size)), 0);
	free(table);
	return told;
}

/* The lines of this machine's own kallsyms, of the kernel alone, against what was told: how many are not. */
static unsigned int count_wrong(const struct symbols *symbols, unsigned int *checked)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	char line[1024], name[512], module[128], type;
	unsigned long long address;
	unsigned int wrong = 0;
	struct symbol symbol;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%llx %c %511s %127s", &address, &type, name, module) != 3 ||
		    !strchr("tT", type) || address < 0xffffffff80000000ull)
			continue;
		/* Of several names at one address the table shows one; to look for a name takes its time. */
		wrong += !symbols_find(symbols, address, &symbol) || symbol.start != address;
		if (!(++*checked % 2000))
			wrong += !symbols_find_name(symbols, name, &symbol);
	}
	if (file)
		fclose(file);
	return wrong;
}

/* This machine's own, with a build id as /sys/kernel/notes has it; and nothing more while nothing is new. */
TEST(guest_agent, tells_the_symbols_of_its_kernel)
{
	struct agent_statistics statistics;
	struct told_kernel *told;
	unsigned int checked = 0;
	struct fixture fixture;
	uint8_t notes[4096];
	int fd;

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(wait_for(&fixture, is_answered));
	CHECK_EQUAL(agent_want_kernel(fixture.agent, 0), -EAGAIN);
	CHECK_EQUAL(agent_want_kernel(fixture.agent, 0), 0);
	CHECK(wait_for(&fixture, has_kernel));
	agent_statistics(fixture.agent, &statistics);
	told = take_told(&fixture);
	if (!told) {
		tear_down(&fixture, NULL);
		CHECK_EQUAL(statistics.tables.kernel_error, -EPERM);
		SKIP("this machine hides the addresses of its kernel");
	}
	CHECK_EQUAL(agent_want_kernel(fixture.agent, told->modules_hash), 0);
	CHECK(ask_again(&fixture, told->modules_hash));
	CHECK(take_told(&fixture) == NULL);
	tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.tables.kernels, 1);
	CHECK_EQUAL(statistics.refused, 0);
	CHECK_EQUAL(statistics.tables.refused + statistics.tables.without, 0);
	CHECK_EQUAL(count_wrong(told->symbols, &checked), 0);
	CHECK(checked > 10000);
	fd = open("/sys/kernel/notes", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t size = read(fd, notes, sizeof(notes));

		CHECK_EQUAL(told->build_id_size, 20);
		CHECK(size > 0 && memmem(notes, (size_t)size, told->build_id, told->build_id_size));
		close(fd);
	}
	told_kernel_free(told);
}

static void write_kernel_file(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", kernel_files, name);
	file = fopen(path, "we");
	REQUIRE(file && fputs(text, file) >= 0);
	fclose(file);
}

/* One that was there, and is until then, is another. */
static void make_directory(const char *name)
{
	char path[128], made[128];

	snprintf(path, sizeof(path), "%s/%s", kernel_files, name);
	snprintf(made, sizeof(made), "%s/made", kernel_files);
	REQUIRE(!mkdir(made, 0755) && !rename(made, path));
}

static void remove_kernel_files(void)
{
	static const char *const names[] = { "proc/modules", "proc/kallsyms", "proc",
					     "module/alpha", "module",        "" };
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", kernel_files, names[i]);
		CHECK(!remove(path));
	}
	kernel_files = NULL;
}

/* Another build of it may well have as many pages and find its old place. */
TEST(guest_agent, tells_the_kernel_anew_when_a_module_is_loaded_again)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct told_kernel *told, *again;
	struct fixture fixture;

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	if (geteuid())
		SKIP("mounting other files in place of the kernel's takes root");
	kernel_files = mkdtemp(directory);
	REQUIRE(kernel_files != NULL);
	make_directory("proc");
	make_directory("module");
	write_kernel_file("proc/modules", "alpha 20480 0 - Live 0xffffffffc0400000\n");
	write_kernel_file("proc/kallsyms", "ffffffff81000000 T _text\n");
	make_directory("module/alpha");
	REQUIRE(set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(wait_for(&fixture, is_answered));
	CHECK_EQUAL(agent_want_kernel(fixture.agent, 0), -EAGAIN);
	CHECK_EQUAL(agent_want_kernel(fixture.agent, 0), 0);
	CHECK(wait_for(&fixture, has_kernel));
	told = take_told(&fixture);
	REQUIRE(told != NULL);
	CHECK_EQUAL(agent_want_kernel(fixture.agent, told->modules_hash), 0);
	CHECK(ask_again(&fixture, told->modules_hash));
	CHECK(take_told(&fixture) == NULL);
	make_directory("module/alpha");
	CHECK(ask_again(&fixture, told->modules_hash));
	CHECK(ask_again(&fixture, told->modules_hash));
	again = take_told(&fixture);
	CHECK(again && again->modules_hash != told->modules_hash);
	tear_down(&fixture, NULL);
	told_kernel_free(told);
	told_kernel_free(again);
	remove_kernel_files();
}

static bool is_second_session(const struct agent_statistics *statistics)
{
	return statistics->sessions == 2 && statistics->snapshot_done;
}

/* A new agent on the same port: the host hears nothing of the session that it has, and begins another. */
TEST(guest_agent, is_asked_anew_when_it_was_killed)
{
	struct agent_statistics statistics;
	struct agent_options options = { 0 };
	struct fixture fixture = { .guest = -1 };
	int fds[2];

	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	REQUIRE(!ring_create(&fixture.ring, 4 << 20));
	options.fd = fds[0];
	options.ring = fixture.ring;
	fixture.process = run_agent(fds[1], true);
	REQUIRE(!agent_start(&fixture.agent, &options));
	CHECK(wait_for(&fixture, snapshot_is_done));
	kill(fixture.process, SIGKILL);
	waitpid(fixture.process, NULL, 0);
	fixture.process = run_agent(fds[1], true);
	close(fds[1]);
	CHECK(wait_for(&fixture, is_second_session));
	tear_down(&fixture, &statistics);
}

/* A listener on the loopback address, with its number; -1 where there is none (module vsock_loopback). */
static int listen_by_vsock(unsigned int *port)
{
	struct sockaddr_vm any = { .svm_family = AF_VSOCK,
				   .svm_cid = VMADDR_CID_ANY,
				   .svm_port = VMADDR_PORT_ANY };
	struct sockaddr_vm local = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_LOCAL };
	socklen_t size = sizeof(any);
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0), probe;

	if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&any, &size))
		goto none;
	*port = local.svm_port = any.svm_port;
	probe = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!connect(probe, (struct sockaddr *)&local, sizeof(local))) {
		close(accept(fd, NULL, NULL));
		close(probe);
		return fd;
	}
	close(probe);
none:
	if (fd >= 0)
		close(fd);
	return -1;
}

static pid_t run_agent_by_vsock(unsigned int port)
{
	char address[32];
	pid_t child = fork();

	if (child)
		return child;
	snprintf(address, sizeof(address), "%u:%u", VMADDR_CID_LOCAL, port);
	execl(AGENT, AGENT, "--vsock", address, NULL);
	_exit(127);
}

/* It connects by itself, and again when the host's end was closed: twice here. */
TEST(guest_agent, reaches_the_host_by_vsock)
{
	struct agent_statistics statistics;
	struct fixture fixture = { .guest = -1 };
	unsigned int port = 0;
	int listener = listen_by_vsock(&port);

	if (listener < 0)
		SKIP("no vsock connects this machine with itself (Linux module vsock_loopback)");
	if (!events_allowed())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(!ring_create(&fixture.ring, 4 << 20));
	fixture.process = run_agent_by_vsock(port);
	for (int i = 0; i < 2; i++) {
		struct agent_options options = { .fd = accept(listener, NULL, NULL), .ring = fixture.ring };

		REQUIRE(options.fd >= 0);
		REQUIRE(!agent_start(&fixture.agent, &options));
		CHECK(wait_for(&fixture, snapshot_is_done));
		if (!i)
			agent_stop(fixture.agent, NULL);
	}
	tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.sessions, 1);
	close(listener);
}

/* 20 s at most; then it is killed, and does not have ended by itself. */
static bool ends_by_itself(pid_t process)
{
	for (int i = 0; i < 2000; i++) {
		if (waitpid(process, NULL, WNOHANG) == process)
			return true;
		usleep(10000);
	}
	kill(process, SIGKILL);
	waitpid(process, NULL, 0);
	return false;
}

/* As a vsock that was reset, a pipe without a reader says POLLERR without POLLIN. */
TEST(guest_agent, lets_go_of_a_connection_that_has_an_error_alone)
{
	struct pollfd error;
	pid_t process;
	int fds[2];

	REQUIRE(!pipe2(fds, O_CLOEXEC | O_NONBLOCK));
	close(fds[0]);
	error = (struct pollfd){ .fd = fds[1], .events = POLLIN };
	CHECK_EQUAL(poll(&error, 1, 0), 1);
	CHECK_EQUAL(error.revents, POLLERR);
	process = run_agent(fds[1], true);
	close(fds[1]);
	CHECK(ends_by_itself(process));
}

static void say(int fd, const void *bytes, size_t size)
{
	struct pollfd room = { .fd = fd, .events = POLLOUT };
	const uint8_t *from = bytes;

	while (size) {
		ssize_t sent = send(fd, from, size, MSG_NOSIGNAL);

		if (sent > 0) {
			from += sent;
			size -= (size_t)sent;
		} else if (poll(&room, 1, 5000) <= 0) {
			FAIL_TEST("the host takes no more");
			return;
		}
	}
}

struct hello {
	uint32_t size;
	uint16_t type, reserved;
	struct agent_hello hello;
};

/* What the host says next, within 5 s; else NULL. */
static const struct agent_message *listen_to_host(int fd, struct agent_stream *stream)
{
	struct pollfd input = { .fd = fd, .events = POLLIN };
	const struct agent_message *message;

	while (agent_stream_next(stream, AGENT_START, &message) <= 0) {
		size_t room;
		uint8_t *to = agent_stream_room(stream, &room);
		ssize_t size;

		if (poll(&input, 1, 5000) <= 0)
			return NULL;
		size = read(fd, to, room);
		agent_stream_received(stream, size > 0 ? (size_t)size : 0);
	}
	return message;
}

/* Answers the host's AGENT_START as an agent does. */
static void say_hello_on(int fd, struct agent_stream *stream)
{
	struct hello hello = { .size = sizeof(hello), .type = AGENT_HELLO };
	const struct agent_message *message;
	const struct agent_start *start;

	agent_stream_reset(stream);
	message = listen_to_host(fd, stream);
	start = message ? agent_payload(message, sizeof(*start)) : NULL;
	if (!start) {
		FAIL_TEST("the host does not begin");
		return;
	}
	hello.hello = (struct agent_hello){
		.magic = AGENT_MAGIC, .session = start->session, .version = 1, .guest_time = now()
	};
	memset(hello.hello.release, 'x', sizeof(hello.hello.release));
	hello.hello.release[0] = '\033';
	say(fd, &hello, sizeof(hello));
}

static void say_hello(int fd)
{
	static struct agent_stream stream;

	say_hello_on(fd, &stream);
}

/* Answers pings until the host knows the time. */
static void say_time(struct fixture *fixture, struct agent_stream *stream)
{
	struct agent_statistics statistics = { 0 };
	const struct agent_message *message;

	while (!statistics.clock_error && (message = listen_to_host(fixture->guest, stream))) {
		struct {
			struct agent_message header;
			struct agent_pong pong;
		} __attribute__((packed, aligned(8))) pong = {
			.header = { .size = sizeof(pong), .type = AGENT_PONG },
			.pong.guest_time = now(),
		};

		if (message->type != AGENT_PING)
			continue;
		memcpy(&pong.pong.host_time, message->payload, sizeof(pong.pong.host_time));
		say(fixture->guest, &pong, sizeof(pong));
		agent_statistics(fixture->agent, &statistics);
	}
}

/* One way to the guest after the other; none at first. */
struct ways {
	atomic_int asked;
	int fds[2];
};

static int give_way(void *context)
{
	struct ways *ways = context;
	int asked = ways->asked++;

	return !asked ? -EBUSY : asked < 3 ? ways->fds[asked - 1] : -ECONNREFUSED;
}

static bool is_busy(const struct agent_statistics *statistics)
{
	return !statistics->connected && statistics->unconnected == -EBUSY;
}

static bool is_answered_again(const struct agent_statistics *statistics)
{
	return statistics->sessions == 2;
}

static bool has_no_way(const struct agent_statistics *statistics)
{
	return !statistics->open && statistics->unconnected == -ECONNREFUSED;
}

TEST(guest_agent, finds_another_way_to_the_guest)
{
	struct agent_options options = { .fd = -1, .connect = give_way };
	struct fixture fixture = { .guest = -1 };
	struct ways ways = { 0 };
	int guests[2];

	for (int i = 0; i < 2; i++) {
		int fds[2];

		REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
		ways.fds[i] = fds[0];
		guests[i] = fds[1];
	}
	REQUIRE(!ring_create(&fixture.ring, 4 << 20));
	options.ring = fixture.ring;
	options.context = &ways;
	REQUIRE(!agent_start(&fixture.agent, &options));
	CHECK(wait_for(&fixture, is_busy));
	say_hello(guests[0]);
	CHECK(wait_for(&fixture, is_answered));
	close(guests[0]);
	say_hello(guests[1]);
	CHECK(wait_for(&fixture, is_answered_again));
	close(guests[1]);
	CHECK(wait_for(&fixture, has_no_way));
	tear_down(&fixture, NULL);
}

TEST(guest_agent, hostile_guest_does_not_stop_the_host)
{
	static uint8_t garbage[1 << 16];
	struct agent_statistics statistics;
	struct fixture fixture;

	srand(9);
	REQUIRE(set_up(&fixture, TEST_ITSELF));
	for (int round = 0; round < 8; round++) {
		say_hello(fixture.guest);
		CHECK(wait_for(&fixture, is_answered));
		for (size_t i = 0; i < sizeof(garbage); i++)
			garbage[i] = (uint8_t)rand();
		/* sometimes with a header that is right */
		if (round % 2)
			*(struct agent_message *)garbage =
				(struct agent_message){ .size = 4096, .type = AGENT_EVENTS };
		say(fixture.guest, garbage, sizeof(garbage));
	}
	say_hello(fixture.guest);
	CHECK(wait_for(&fixture, is_answered));
	tear_down(&fixture, &statistics);
	CHECK(statistics.refused >= 8);
	CHECK_EQUAL(strlen(statistics.release), AGENT_RELEASE_MAX - 1);
	CHECK_EQUAL(statistics.release[0], '?');
}

static bool is_given_up(const struct agent_statistics *statistics)
{
	return !statistics->open;
}

/* Events without end, and nobody reads the ring: some wait for that, and the others are dropped and counted.
 */
TEST(guest_agent, flood_fills_the_ring_and_what_may_wait_and_nothing_else)
{
	static struct {
		struct agent_message header;
		struct agent_events events;
		uint8_t records[40 * 1000];
	} __attribute__((packed, aligned(8))) message;
	static struct agent_stream stream;
	struct agent_statistics statistics;
	struct ring_statistics ring;
	struct fixture fixture;
	uint64_t time = now();

	message.header = (struct agent_message){ .size = sizeof(message), .type = AGENT_EVENTS };
	for (size_t i = 0; i < sizeof(message.records); i += 40) {
		struct perf_event_header header = { .type = PERF_RECORD_COMM, .size = 40 };
		uint32_t ids[] = { 5, 5 };

		memcpy(message.records + i, &header, sizeof(header));
		memcpy(message.records + i + 8, ids, sizeof(ids));
		memcpy(message.records + i + 16, "flood", 6);
		memcpy(message.records + i + 32, &time, sizeof(time));
	}
	REQUIRE(set_up(&fixture, TEST_ITSELF));
	say_hello_on(fixture.guest, &stream);
	say_time(&fixture, &stream);
	for (int i = 0; i < 300; i++)
		say(fixture.guest, &message, sizeof(message));
	CHECK(wait_for(&fixture, is_given_up));
	agent_statistics(fixture.agent, &statistics);
	ring_statistics(fixture.ring, &ring);
	tear_down(&fixture, NULL);
	CHECK_EQUAL(ring.lost, 0);
	CHECK(statistics.lost > 0);
	/* In the ring are also the round with which the session begins, and what is said of JIT maps then. */
	CHECK_EQUAL(statistics.records, ring.written - 2 + statistics.lost);
}

/* Has the other end of FD read all that was sent there? Within 20 s. */
static bool is_read(int fd)
{
	int unread = 1;

	for (int i = 0; i < 2000 && unread; i++) {
		usleep(10000);
		if (ioctl(fd, SIOCOUTQ, &unread))
			return false;
	}
	return !unread;
}

/* More than it has room for was waiting to be read: without the answer the host would ask no more. */
TEST(guest_agent, answers_a_ping_that_there_was_no_room_for)
{
	struct {
		struct agent_message header;
		struct agent_start start;
	} start = { .header = { .size = sizeof(start), .type = AGENT_START },
		    .start = { .magic = AGENT_MAGIC, .session = 78, .version = AGENT_PROTOCOL_VERSION } };
	struct {
		struct agent_message header;
		struct agent_ping ping;
	} ping = { .header = { .size = sizeof(ping), .type = AGENT_PING } };
	const struct agent_message *message = NULL;
	uint64_t answered = 0; /* the latest */
	static struct agent_stream stream;
	struct pollfd input;
	pid_t process;
	int fds[2];

	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	process = run_agent(fds[1], false);
	close(fds[1]);
	say(fds[0], &start, sizeof(start));
	/* Each has an answer and a round, of 100 bytes together: more than a socket and the buffer hold. */
	for (ping.ping.host_time = 1; ping.ping.host_time < 12000; ping.ping.host_time++)
		say(fds[0], &ping, sizeof(ping));
	CHECK(is_read(fds[0]));
	input = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	agent_stream_reset(&stream);
	for (uint64_t end = now() + 20000000000u; answered < 11999 && now() < end;) {
		size_t room;
		uint8_t *to = agent_stream_room(&stream, &room);
		ssize_t size = poll(&input, 1, 1000) > 0 ? read(fds[0], to, room) : 0;

		agent_stream_received(&stream, size > 0 ? (size_t)size : 0);
		while (agent_stream_next(&stream, AGENT_HELLO, &message) > 0)
			if (message->type == AGENT_PONG)
				answered = ((const struct agent_pong *)message->payload)->host_time;
	}
	CHECK_EQUAL(answered, 11999);
	kill(process, SIGTERM);
	waitpid(process, NULL, 0);
	close(fds[0]);
}

/* A host that says garbage, and then asks properly, gets its answer; one that does not read blocks nobody. */
TEST(guest_agent, hostile_host_does_not_stop_the_agent)
{
	struct {
		uint32_t size;
		uint16_t type, reserved;
		struct agent_start start;
	} start = { .size = sizeof(start),
		    .type = AGENT_START,
		    .start = { .magic = AGENT_MAGIC, .session = 77 } };
	static uint8_t garbage[1 << 16];
	static struct agent_stream stream;
	const struct agent_message *message = NULL;
	const struct agent_hello *hello = NULL;
	struct pollfd input;
	int fds[2], status;
	pid_t process;

	srand(10);
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	process = run_agent(fds[1], true);
	close(fds[1]);
	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (uint8_t)rand();
	say(fds[0], garbage, sizeof(garbage));
	say(fds[0], &start, sizeof(start));
	input = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	agent_stream_reset(&stream);
	while (!hello && poll(&input, 1, 10000) > 0) {
		size_t room;
		uint8_t *to = agent_stream_room(&stream, &room);
		ssize_t size = read(fds[0], to, room);

		agent_stream_received(&stream, size > 0 ? (size_t)size : 0);
		if (agent_stream_next(&stream, AGENT_HELLO, &message) > 0)
			hello = agent_payload(message, sizeof(*hello));
	}
	REQUIRE(hello != NULL);
	CHECK_EQUAL(hello->session, 77);
	/* It still listens to its signals with nobody reading what it says. */
	kill(process, SIGTERM);
	CHECK_EQUAL(waitpid(process, &status, 0), process);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	close(fds[0]);
}
