/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documented properties of the agent's program: its size, its memory and its end; and reports that
 * tests/unit/guest-agent/test_guest_agent.c does not check.
 */
#include <fcntl.h>
#include <gelf.h>
#include <linux/bpf.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"
#include "vmm/agent/agent_client.h"
#include "vmm/symbols/elf_symbols.h"

#define SIZE_LIMIT (300l * 1024)
#define RESIDENT   2048 /* KiB */
#define PROCESSES  200
/* Else there is no snapshot. */
#define PROCESSES_TOLD (AGENT_FEATURE_EVENTS | AGENT_FEATURE_CONNECTOR)
#define WAIT_MS        20000
#define PROGRAMS_MAX   4000 /* loaded until the agent has reported one */

/* The agent on one end of a socket, of which the test keeps the other beside the host's side. */
struct fixture {
	pid_t process;
	int kept;
	struct ring *ring;
	struct agent *agent;
};

static bool begin_session(struct fixture *fixture)
{
	struct agent_options options = { .ring = fixture->ring, .tsc_known = true };

	options.fd = fcntl(fixture->kept, F_DUPFD_CLOEXEC, 0);
	return !agent_start(&fixture->agent, &options);
}

static bool set_up(struct fixture *fixture, const char *option)
{
	char number[16];
	int fds[2];

	*fixture = (struct fixture){ .kept = -1 };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) ||
	    ring_create(&fixture->ring, 4 << 20))
		return false;
	snprintf(number, sizeof(number), "%d", fds[1]);
	fixture->kept = fds[0];
	fixture->process = fork();
	if (!fixture->process) {
		fcntl(fds[1], F_SETFD, 0);
		execl(AGENT, AGENT, "--fd", number, option, NULL);
		_exit(127);
	}
	close(fds[1]);
	return begin_session(fixture);
}

static void tear_down(struct fixture *fixture)
{
	agent_stop(fixture->agent, NULL);
	close(fixture->kept);
	if (fixture->process > 0) {
		kill(fixture->process, SIGTERM);
		waitpid(fixture->process, NULL, 0);
	}
	ring_destroy(fixture->ring);
}

static bool wait_for_session(struct fixture *fixture)
{
	struct agent_statistics statistics;

	for (int i = 0; i < WAIT_MS / 10; i++) {
		agent_statistics(fixture->agent, &statistics);
		if (statistics.open &&
		    (statistics.snapshot_done || !(statistics.features & PROCESSES_TOLD)))
			return true;
		usleep(10000);
	}
	return false;
}

static uint32_t features_of(struct fixture *fixture)
{
	struct agent_statistics statistics;

	agent_statistics(fixture->agent, &statistics);
	return statistics.features;
}

/* Reads the ring until a record for which FOUND is true. */
static bool find(struct fixture *fixture, bool (*found)(const struct sideband *, void *),
		 void *context)
{
	const struct ring_record *record;

	for (int i = 0; i < WAIT_MS / 10; i++) {
		while ((record = ring_read(fixture->ring)))
			if (record->type == RECORD_SIDEBAND &&
			    found((const struct sideband *)record->payload, context))
				return true;
		ring_read_done(fixture->ring);
		usleep(10000);
	}
	return false;
}

static bool has_segment(Elf *elf, uint32_t type)
{
	GElf_Phdr segment;
	size_t count = 0;

	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count; i++)
		if (gelf_getphdr(elf, (int)i, &segment) && segment.p_type == type)
			return true;
	return false;
}

static bool has_section(Elf *elf, uint32_t type)
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;

	while ((section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type == type)
			return true;
	return false;
}

TEST(agent_program, is_one_static_file_below_300_KiB)
{
	int fd = open(AGENT, O_RDONLY | O_CLOEXEC);
	struct stat status;
	Elf *elf;

	REQUIRE(fd >= 0 && !fstat(fd, &status));
	CHECK(status.st_size < SIZE_LIMIT);
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	REQUIRE(elf && has_segment(elf, PT_LOAD));
	CHECK(!has_segment(elf, PT_INTERP));
	CHECK(has_section(elf, SHT_SYMTAB)); /* for profiles */
	elf_end(elf);
	close(fd);
}

/* The exit status of the agent, or -1 if it runs on. */
static int status_of(struct fixture *fixture)
{
	int status;

	for (int i = 0; i < WAIT_MS / 10; i++) {
		if (waitpid(fixture->process, &status, WNOHANG) == fixture->process) {
			fixture->process = 0;
			return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		}
		usleep(10000);
	}
	return -1;
}

/* The way to the host is there all the time: it is the recording's end that ends it. */
TEST(agent_program, once_ends_with_the_first_recording)
{
	struct fixture fixture;

	REQUIRE(set_up(&fixture, "--once"));
	CHECK(wait_for_session(&fixture));
	agent_stop(fixture.agent, NULL);
	fixture.agent = NULL;
	CHECK_EQUAL(status_of(&fixture), 0);
	tear_down(&fixture);
}

TEST(agent_program, goes_on_to_the_next_recording)
{
	struct fixture fixture;

	REQUIRE(set_up(&fixture, NULL));
	CHECK(wait_for_session(&fixture));
	agent_stop(fixture.agent, NULL);
	REQUIRE(begin_session(&fixture));
	CHECK(wait_for_session(&fixture));
	tear_down(&fixture);
}

TEST(agent_program, once_ends_at_once_without_a_port)
{
	CHECK_EQUAL(WEXITSTATUS(system(AGENT " --once --port org.kvmscope.none 2> /dev/null")), 1);
}

static int most_resident_kib(pid_t process)
{
	char path[64], line[256];
	int kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", process);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "VmHWM: %d", &kib);
	if (file)
		fclose(file);
	return kib;
}

/* One after the other; the latest. */
static uint32_t run_programs(unsigned int count)
{
	pid_t child = 0;

	for (unsigned int i = 0; i < count; i++) {
		child = fork();
		if (!child) {
			execl("/bin/true", "true", NULL);
			_exit(127);
		}
		waitpid(child, NULL, 0);
	}
	return (uint32_t)child;
}

static bool is_end_of(const struct sideband *record, void *pid)
{
	return record->type == SIDEBAND_EXIT && record->pid == *(const uint32_t *)pid;
}

/* While programs start and end, until the end of the last one is reported. FEATURE: the source of
 * these events. */
static void check_resident(enum agent_fixture_end end, uint32_t feature)
{
	struct agent_statistics statistics;
	struct agent_fixture fixture;
	uint32_t latest;
	int kib;

	REQUIRE(agent_fixture_set_up(&fixture, end));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_is_answered));
	agent_statistics(fixture.agent, &statistics);
	if (!(statistics.features & feature)) {
		agent_fixture_tear_down(&fixture, NULL);
		SKIP("this machine's kernel has no such events of processes, or not for this user");
	}
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
	latest = run_programs(PROCESSES);
	CHECK(agent_fixture_find(&fixture, is_end_of, &latest));
	kib = most_resident_kib(fixture.process);
	if (!kib || kib >= RESIDENT)
		FAIL_TEST("%d KiB were resident", kib);
	agent_fixture_tear_down(&fixture, NULL);
}

TEST(agent_program, needs_less_than_2_MiB_while_programs_come_and_go)
{
	check_resident(AGENT_WITH_EVENTS, AGENT_FEATURE_EVENTS);
}

TEST(agent_program, needs_less_than_2_MiB_where_its_kernel_allows_no_events)
{
	check_resident(AGENT_WITHOUT_EVENTS, AGENT_FEATURE_CONNECTOR);
}

/* Code that the kernel generated for the latest program of that name. */
struct code {
	char name[BPF_OBJ_NAME_LEN];
	uint64_t start, length;
	bool unloaded; /* as reported */
};

static void update_code(const struct sideband *record, struct code *code)
{
	const struct sideband_module *made = (const void *)record;
	const struct sideband_munmap *gone = (const void *)record;

	if (record->type == SIDEBAND_MODULE_LOAD && strstr(made->name, code->name)) {
		CHECK_EQUAL(record->flags, SIDEBAND_MODULE_GENERATED);
		CHECK(made->start >> 63 && made->length);
		code->start = made->start;
		code->length = made->length;
	} else if (record->type == SIDEBAND_MODULE_UNLOAD && code->length) {
		code->unloaded |= gone->start == code->start && gone->length == code->length;
	}
}

/* A BPF program that does nothing; -1 where there may be none. */
static int load_program(const char *name)
{
	static const struct bpf_insn instructions[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attribute = {
		.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
		.insns = (uintptr_t)instructions,
		.insn_cnt = 2,
		.license = (uintptr_t) "Dual BSD/GPL",
	};

	snprintf(attribute.prog_name, sizeof(attribute.prog_name), "%s", name);
	return (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attribute, sizeof(attribute));
}

/* Else BPF programs are interpreted: none has code of its own. */
static bool makes_code(void)
{
	FILE *file = fopen("/proc/sys/net/core/bpf_jit_enable", "re");
	int enabled = 0;

	if (file && fscanf(file, "%d", &enabled) != 1)
		enabled = 0;
	if (file)
		fclose(file);
	return enabled;
}

/* Comes and goes at once. */
static bool run_program(const struct code *code)
{
	int program = load_program(code->name);

	if (program >= 0)
		close(program);
	return program >= 0;
}

static void read_code(struct fixture *fixture, struct code *code)
{
	const struct ring_record *record;

	while ((record = ring_read(fixture->ring)))
		if (record->type == RECORD_SIDEBAND)
			update_code((const struct sideband *)record->payload, code);
	ring_read_done(fixture->ring);
}

/* From the kernel's KSYMBOL events. On a busy machine some of them are lost. */
TEST(agent_program, reports_the_code_of_a_BPF_program)
{
	struct code code = { .unloaded = false };
	struct fixture fixture;
	bool loaded;

	if (!makes_code())
		SKIP("this kernel makes no code of BPF programs");
	snprintf(code.name, sizeof(code.name), "kvmscope%d",
		 getpid()); /* other tests may run beside */
	REQUIRE(set_up(&fixture, NULL));
	CHECK(wait_for_session(&fixture));
	loaded = features_of(&fixture) & AGENT_FEATURE_KSYMBOLS;
	for (int i = 0; i < PROGRAMS_MAX && loaded && !code.unloaded; i++) {
		loaded = run_program(&code);
		usleep(50000);
		read_code(&fixture, &code);
	}
	CHECK(code.unloaded || !loaded);
	tear_down(&fixture);
	if (!loaded)
		SKIP("perf events of BPF programs, or bpf(2), are not allowed here");
}

/* Where two namespaces have different files; the tests of another build may run beside. */
static char other[64];

/* As PROGRAM of that directory. */
static bool put(const char *program)
{
	char command[256];

	snprintf(command, sizeof(command), "cp %s %s/program", program, other);
	return !system(command);
}

/* In a mount namespace of its own that directory is another directory, and then the root of the
 * process. */
static pid_t run_elsewhere(bool is_root, int ready)
{
	pid_t child = fork();
	char path[80];

	if (child)
		return child;
	snprintf(path, sizeof(path), "%s/program", is_root ? "" : other);
	if (!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	    !mount("none", other, "tmpfs", 0, NULL) && put(AGENT) &&
	    (!is_root || (!chroot(other) && !chdir("/"))) && write(ready, "x", 1) == 1)
		execl(path, "program", "--port", "org.kvmscope.none", NULL);
	_exit(126);
}

/* It takes root, and not all that root may do elsewhere it may do in a container. */
static bool can_be_elsewhere(void)
{
	pid_t child = fork();
	int status = -1;

	if (!child)
		_exit(unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		      mount("none", "/tmp", "tmpfs", 0, NULL) || chroot("/tmp"));
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

struct elsewhere {
	uint32_t pid;
	struct sideband_mmap mapping;
};

static bool is_its_program(const struct sideband *record, void *context)
{
	const struct sideband_mmap *mapping = (const void *)record;
	struct elsewhere *elsewhere = context;

	if (record->type != SIDEBAND_MMAP || record->pid != elsewhere->pid ||
	    !strstr(mapping->name, "/program"))
		return false;
	elsewhere->mapping = *mapping;
	return true;
}

/* A mapping is reported with its own file, not with the file that has its path elsewhere. */
static void check_its_program(struct fixture *fixture, struct elsewhere *elsewhere)
{
	uint8_t build_id[ELF_BUILD_ID_MAX];

	CHECK(wait_for_session(fixture));
	if (features_of(fixture) & PROCESSES_TOLD) {
		CHECK(find(fixture, is_its_program, elsewhere));
		CHECK_EQUAL(elf_build_id(AGENT, build_id), elsewhere->mapping.build_id_size);
		CHECK(!memcmp(elsewhere->mapping.build_id, build_id,
			      elsewhere->mapping.build_id_size));
	}
}

static void check_elsewhere(bool is_root)
{
	struct elsewhere elsewhere = { 0 };
	struct fixture fixture;
	int ready[2];
	bool is_up;
	char byte;

	REQUIRE(!pipe2(ready, O_CLOEXEC));
	elsewhere.pid = (uint32_t)run_elsewhere(is_root, ready[1]);
	close(ready[1]);
	CHECK_EQUAL(read(ready[0], &byte, 1), 1);
	CHECK_EQUAL(read(ready[0], &byte, 1), 0); /* it has become the program */
	close(ready[0]);
	is_up = set_up(&fixture, NULL);
	CHECK(is_up);
	if (is_up) {
		check_its_program(&fixture, &elsewhere);
		tear_down(&fixture);
	}
	kill((pid_t)elsewhere.pid, SIGKILL);
	waitpid((pid_t)elsewhere.pid, NULL, 0);
}

TEST(agent_program, sees_files_as_processes_elsewhere_do)
{
	char program[80];

	if (!can_be_elsewhere())
		SKIP("another mount namespace, with another root, takes rights that are missing here");
	snprintf(other, sizeof(other), "/tmp/kvmscope-test-namespace-%d", getpid());
	REQUIRE(!mkdir(other, 0700));
	if (put("/bin/true")) {
		check_elsewhere(false);
		check_elsewhere(true);
	} else {
		FAIL_TEST("/bin/true cannot be copied to %s", other);
	}
	snprintf(program, sizeof(program), "%s/program", other);
	unlink(program);
	rmdir(other);
}
