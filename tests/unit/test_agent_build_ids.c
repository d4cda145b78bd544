/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent beside others who record mappings of the same kernel. Linux 5.12 and later mark the record of a
 * mapping for all who listen once one of them has asked for build ids (perf_event_mmap_output() in
 * kernel/events/core.c): what it is marked for may be an inode then.
 */
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"

#define CPUS_MAX  1024
#define RING_SIZE 4096u /* bytes of data, behind a page */
/* Where this machine is busy and events are lost, or others ask its kernel for build ids for a moment. */
#define TRIES 50

struct listener {
	int fd; /* -1: there is no such CPU */
	struct perf_event_mmap_page *page;
};

/* Without a ring it would not be told, nor mark anything. */
static struct listener listen_to(pid_t pid, int cpu, bool build_ids)
{
	struct listener listener = { 0 };

	struct perf_event_attr attribute = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.size = sizeof(attribute),
		.mmap = 1,
		.mmap2 = 1,
		.build_id = build_ids,
	};

	listener.fd = (int)syscall(SYS_perf_event_open, &attribute, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (listener.fd < 0)
		return listener;
	listener.page = mmap(NULL, 4096 + RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, listener.fd, 0);
	CHECK(listener.page != MAP_FAILED);
	return listener;
}

static void close_listener(const struct listener *listener)
{
	munmap(listener->page, 4096 + RING_SIZE);
	close(listener->fd);
}

/* A mapping of code comes and goes. */
static bool map_code(void)
{
	int fd = open(AGENT, O_RDONLY | O_CLOEXEC);
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	close(fd);
	return code != MAP_FAILED && !munmap(code, 4096);
}

/* Of the first record: that of the mapping. */
static bool is_marked(const struct perf_event_mmap_page *page)
{
	const struct perf_event_header *header = (const void *)((const char *)page + page->data_offset);

	CHECK(page->data_head >= sizeof(*header));
	CHECK_EQUAL(header->type, PERF_RECORD_MMAP2);
	return header->misc & PERF_RECORD_MISC_MMAP_BUILD_ID;
}

/* perf record PROGRAM listens so. */
static bool is_told_of_one(void)
{
	struct listener listener = listen_to(0, -1, false);
	bool marked;

	CHECK(listener.fd >= 0);
	if (listener.fd < 0)
		return true;
	CHECK(map_code());
	marked = is_marked(listener.page);
	close_listener(&listener);
	return marked;
}

TEST(agent_build_ids, who_records_a_program_beside_it_is_told_of_none)
{
	struct agent_fixture fixture;
	bool told = true;

	if (!agent_fixture_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
	for (int i = 0; i < TRIES && told; i++) {
		told = is_told_of_one();
		usleep(told ? 100000 : 0);
	}
	CHECK(!told);
	agent_fixture_tear_down(&fixture, NULL);
}

struct program {
	uint32_t pid;
	uint8_t build_id[sizeof(((struct sideband_mmap *)NULL)->build_id)];
	size_t size; /* of that */
	bool lost;   /* something is, which may have been about it */
};

static bool is_program(const struct sideband *record, void *context)
{
	const struct sideband_mmap *mapping = (const void *)record;
	struct program *program = context;

	program->lost |= record->type == SIDEBAND_LOST;
	if (program->lost)
		return true;
	if (record->type != SIDEBAND_MMAP || record->pid != program->pid ||
	    !strstr(mapping->name, "/kvmscope-agent"))
		return false;
	program->size = mapping->build_id_size;
	memcpy(program->build_id, mapping->build_id, sizeof(program->build_id));
	return true;
}

/* False: that is not known, as events were lost. */
static bool try_program(struct agent_fixture *fixture, struct program *program)
{
	*program = (struct program){ .pid = (uint32_t)fork() };
	if (!program->pid) {
		execl(AGENT, AGENT, "--port", "org.kvmscope.none", NULL);
		_exit(127);
	}
	CHECK(agent_fixture_find(fixture, is_program, program));
	kill((pid_t)program->pid, SIGKILL);
	waitpid((pid_t)program->pid, NULL, 0);
	return !program->lost;
}

static void see_program(struct agent_fixture *fixture, struct program *program)
{
	bool seen = false;

	for (int i = 0; i < TRIES && !seen; i++)
		seen = try_program(fixture, program);
	CHECK(seen);
	CHECK(program->size > 0);
}

/* Who came behind it is told before it: perf record -a --buildid-mmap. */
TEST(agent_build_ids, are_right_beside_somebody_who_asks_the_kernel_for_them)
{
	struct program alone, beside;
	struct agent_fixture fixture;
	struct listener listeners[CPUS_MAX];
	int cpus = 0;

	if (!agent_fixture_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
	see_program(&fixture, &alone);
	while (cpus < CPUS_MAX && (listeners[cpus] = listen_to(-1, cpus, true)).fd >= 0)
		cpus++;
	see_program(&fixture, &beside);
	CHECK_EQUAL(beside.size, alone.size);
	CHECK(!memcmp(beside.build_id, alone.build_id, alone.size));
	while (cpus)
		close_listener(&listeners[--cpus]);
	agent_fixture_tear_down(&fixture, NULL);
}
