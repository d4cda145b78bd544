/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent beside other users of perf events for mappings. Linux 5.12 and later mark the record
 * of a mapping for all of them once one has requested build IDs
 * (perf_event_mmap_output() in kernel/events/core.c): the marked field may be an inode then.
 */
#include "guest-agent/build_ids.c"
#include "guest-agent/mapped_build_id.c"
#include "guest-agent/mapped_file.c"

#include <limits.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"

#define RING_SIZE 4096u /* bytes of data, after a page */
/* Where others ask this machine's kernel for build ids for a moment. */
#define TRIES 50

struct listener {
	int fd;
	struct perf_event_mmap_page *page;
};

static struct listener listen_to_self(void)
{
	struct listener listener = { 0 };
	struct perf_event_attr attribute = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.size = sizeof(attribute),
		.mmap = 1,
		.mmap2 = 1,
	};

	listener.fd =
		(int)syscall(SYS_perf_event_open, &attribute, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (listener.fd < 0)
		return listener;
	listener.page =
		mmap(NULL, 4096 + RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, listener.fd, 0);
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
	const struct perf_event_header *header =
		(const void *)((const char *)page + page->data_offset);

	CHECK(page->data_head >= sizeof(*header));
	CHECK_EQUAL(header->type, PERF_RECORD_MMAP2);
	return header->misc & PERF_RECORD_MISC_MMAP_BUILD_ID;
}

/* With the events of perf record PROGRAM. */
static bool gets_a_build_id(void)
{
	struct listener listener = listen_to_self();
	bool marked;

	CHECK(listener.fd >= 0);
	if (listener.fd < 0)
		return true;
	CHECK(map_code());
	marked = is_marked(listener.page);
	close_listener(&listener);
	return marked;
}

TEST(agent_build_ids, other_perf_users_get_no_build_ids)
{
	struct agent_fixture fixture;
	bool marked = true;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
	for (int i = 0; i < TRIES && marked; i++) {
		marked = gets_a_build_id();
		usleep(marked ? 100000 : 0);
	}
	CHECK(!marked);
	agent_fixture_tear_down(&fixture, NULL);
}

struct mapping_record {
	struct perf_event_header header;
	struct agent_mmap2 mapping;
	char path[PATH_MAX];
};

/*
 * A record of a mapping of this process's code, as the kernel writes it. If INODE is not that of
 * its file, the file cannot be found.
 */
static struct mapping_record mapping_of(const struct stat *file, uint64_t inode, uint16_t misc)
{
	struct mapping_record record = {
		.header = { PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER | misc, sizeof(record) },
		.mapping = { .pid = (uint32_t)getpid(),
			     .size = 4096,
			     .major = major(file->st_dev),
			     .minor = minor(file->st_dev),
			     .inode = inode,
			     .prot = PROT_READ | PROT_EXEC },
	};

	if (!realpath(AGENT, record.path))
		FAIL_TEST("%s is not there", AGENT);
	build_ids_add((uint8_t *)&record);
	return record;
}

/* The marked field is an inode: the agent's own events have no build IDs. */
TEST(agent_build_ids, a_mark_for_another_user_of_perf_is_ignored)
{
	struct mapping_record plain, marked, unknown;
	struct stat file;

	REQUIRE(!stat(AGENT, &file));
	plain = mapping_of(&file, file.st_ino, 0);
	marked = mapping_of(&file, file.st_ino, PERF_RECORD_MISC_MMAP_BUILD_ID);
	CHECK(plain.header.misc & PERF_RECORD_MISC_MMAP_BUILD_ID);
	CHECK_EQUAL(plain.mapping.build_id_size, 20);
	CHECK(!memcmp(&plain, &marked, sizeof(plain)));
	unknown = mapping_of(&file, file.st_ino + 1, PERF_RECORD_MISC_MMAP_BUILD_ID);
	CHECK_EQUAL(unknown.header.misc, PERF_RECORD_MISC_USER);
	CHECK_EQUAL(unknown.mapping.inode, file.st_ino + 1);
}
