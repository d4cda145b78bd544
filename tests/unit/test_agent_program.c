/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of the agent's program: its size, what it needs, when it ends; and
 * what else of this machine's kernel it tells than tests/unit/test_guest_agent.c looks at.
 */
#include <fcntl.h>
#include <gelf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/sample.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/agent.h"

#define AGENT      "build/agent/kvmscope-agent"
#define SIZE_LIMIT (300 * 1024)
#define RESIDENT   2048 /* KiB */
#define PROCESSES  200
/* Else there is no snapshot. */
#define PROCESSES_TOLD (AGENT_FEATURE_EVENTS | AGENT_FEATURE_CONNECTOR)
#define WAIT_MS        20000

/* The agent on one end of a socket, of which the test keeps the other beside the host's side. */
struct fixture {
	pid_t process;
	int kept;
	struct ring *ring;
	struct agent *agent;
};

static bool begin_session(struct fixture *fixture)
{
	struct agent_options options = { .ring = fixture->ring, .table_memory = 1 << 20, .tsc_known = true };

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
		if (statistics.open && (statistics.snapshot_done || !(statistics.features & PROCESSES_TOLD)))
			return true;
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
	CHECK(!has_segment(elf, PT_DYNAMIC));
	CHECK(!has_section(elf, SHT_SYMTAB));
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

static void run_programs(unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		pid_t child = fork();

		if (!child) {
			execl("/bin/true", "true", NULL);
			_exit(127);
		}
		waitpid(child, NULL, 0);
	}
}

TEST(agent_program, needs_less_than_2_MiB_while_programs_come_and_go)
{
	struct fixture fixture;
	int kib;

	REQUIRE(set_up(&fixture, NULL));
	CHECK(wait_for_session(&fixture));
	run_programs(PROCESSES);
	kib = most_resident_kib(fixture.process);
	if (!kib || kib >= RESIDENT)
		FAIL_TEST("%d KiB were resident", kib);
	tear_down(&fixture);
}
