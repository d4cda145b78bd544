/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>

#include "shared/agent_protocol.h"
#include "tests/unit/shim/test.h"
#include "vmm/agent/agent_records.h"

/* A record as the guest's kernel writes it. */
struct made {
	uint8_t bytes[8192];
	size_t size;
};

static void add(struct made *made, const void *bytes, size_t size)
{
	memcpy(made->bytes + made->size, bytes, size);
	made->size += size;
}

static struct made make(uint32_t type, uint16_t misc, const void *fixed, size_t size,
			const char *name)
{
	struct perf_event_header header = { .type = type, .misc = misc };
	struct agent_record_end end = { .pid = 1, .tid = 1, .time = 123456789 };
	struct made made = { .size = 0 };

	add(&made, &header, sizeof(header));
	add(&made, fixed, size);
	if (name)
		add(&made, name, strlen(name) + 1);
	made.size = (made.size + 7) / 8 * 8;
	add(&made, &end, sizeof(end));
	header.size = (uint16_t)made.size;
	memcpy(made.bytes, &header, sizeof(header));
	return made;
}

static int decode(const struct made *made, struct agent_record *record)
{
	return agent_record_decode(span_of(made->bytes, made->size), record);
}

struct mmap2_build_id {
	uint32_t pid, tid;
	uint64_t start, size, offset;
	uint8_t build_id_size, reserved[3], build_id[20];
	uint32_t prot, flags;
};

static const struct mmap2_build_id mapping = {
	.pid = 7,
	.tid = 8,
	.start = 0x400000,
	.size = 0x2000,
	.offset = 0x1000,
	.build_id_size = 20,
	.build_id = { 0xab, 0xcd },
	.prot = 5,
	.flags = 2,
};

TEST(agent_records, mapping_with_a_build_id)
{
	struct made made = make(PERF_RECORD_MMAP2, PERF_RECORD_MISC_MMAP_BUILD_ID, &mapping,
				sizeof(mapping), "/bin/true");
	struct agent_record record;
	const struct sideband_mmap *found = (void *)&record.sideband;

	CHECK_EQUAL(decode(&made, &record), made.size);
	CHECK_EQUAL(record.guest_time, 123456789);
	REQUIRE(record.sideband.head.size && found->head.type == SIDEBAND_MMAP);
	CHECK_EQUAL(found->head.pid, 7);
	CHECK_EQUAL(found->head.tid, 8);
	CHECK_EQUAL(found->start, 0x400000);
	CHECK_EQUAL(found->length, 0x2000);
	CHECK_EQUAL(found->offset, 0x1000);
	CHECK_EQUAL(found->build_id_size, 20);
	CHECK_EQUAL(found->build_id[1], 0xcd);
	CHECK_EQUAL(found->inode, 0);
	CHECK_STRING(found->name, "/bin/true");
}

TEST(agent_records, tasks_names_and_losses)
{
	const uint32_t task[] = { 10, 9, 11, 9, 0, 0 }, ids[] = { 10, 11 };
	const uint64_t lost[] = { 1, 55 };
	struct made fork = make(PERF_RECORD_FORK, 0, task, sizeof(task), NULL);
	struct made end = make(PERF_RECORD_EXIT, 0, task, sizeof(task), NULL);
	struct made exec =
		make(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, ids, sizeof(ids), "sh");
	struct made losses = make(PERF_RECORD_LOST, 0, lost, sizeof(lost), NULL);
	struct agent_record record;

	decode(&fork, &record);
	REQUIRE(record.sideband.head.type == SIDEBAND_FORK);
	CHECK_EQUAL(record.sideband.head.pid, 10);
	CHECK_EQUAL(record.sideband.head.tid, 11);
	CHECK_EQUAL(((struct sideband_fork *)&record.sideband)->parent_pid, 9);
	decode(&end, &record);
	CHECK_EQUAL(record.sideband.head.type, SIDEBAND_EXIT);
	decode(&exec, &record);
	CHECK_EQUAL(record.sideband.head.type, SIDEBAND_COMM);
	CHECK_EQUAL(record.sideband.head.flags, SIDEBAND_COMM_EXEC);
	CHECK_STRING(((struct sideband_comm *)&record.sideband)->comm, "sh");
	decode(&losses, &record);
	CHECK_EQUAL(record.sideband.head.type, SIDEBAND_LOST);
	CHECK_EQUAL(((struct sideband_lost *)&record.sideband)->count, 55);
}

static bool is_skipped(const struct made *made)
{
	struct agent_record record;

	return decode(made, &record) == (int)made->size && !record.sideband.head.size;
}

TEST(agent_records, invalid_records_are_skipped)
{
	struct mmap2_build_id wrong = mapping;
	char path[SIDEBAND_NAME_MAX + 1];
	struct made made;

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	made = make(PERF_RECORD_MMAP2, 0, &mapping, sizeof(mapping), path);
	CHECK(is_skipped(&made));
	wrong.size = 0;
	made = make(PERF_RECORD_MMAP2, 0, &wrong, sizeof(wrong), "/bin/true");
	CHECK(is_skipped(&made));
	wrong.size = UINT64_MAX - wrong.start + 1;
	made = make(PERF_RECORD_MMAP2, 0, &wrong, sizeof(wrong), "/bin/true");
	CHECK(is_skipped(&made));
	wrong = mapping;
	wrong.pid = 0;
	made = make(PERF_RECORD_MMAP2, 0, &wrong, sizeof(wrong), "/bin/true");
	CHECK(is_skipped(&made));
	wrong = mapping;
	wrong.build_id_size = 21;
	made = make(PERF_RECORD_MMAP2, PERF_RECORD_MISC_MMAP_BUILD_ID, &wrong, sizeof(wrong),
		    "/bin/true");
	CHECK(is_skipped(&made));
	made = make(PERF_RECORD_COMM, 0, &mapping, 8, "a name of sixteen");
	CHECK(is_skipped(&made));
	made = make(77, 0, &mapping, sizeof(mapping), NULL);
	CHECK(is_skipped(&made));
}

TEST(agent_records, cut_records_are_none)
{
	struct made made = make(PERF_RECORD_MMAP2, 0, &mapping, sizeof(mapping), "/bin/true");
	struct agent_record record;

	for (size_t size = 0; size < made.size; size++) {
		uint8_t *copy = malloc(size);

		memcpy(copy, made.bytes, size);
		CHECK_EQUAL(agent_record_decode(span_of(copy, size), &record), -EPROTO);
		free(copy);
	}
}

/* The process is that of the record's end. */
TEST(agent_records, cgroups)
{
	const uint64_t id = 4711;
	struct made made =
		make(PERF_RECORD_CGROUP, 0, &id, sizeof(id), "/system.slice/ssh.service");
	struct made relative = make(PERF_RECORD_CGROUP, 0, &id, sizeof(id), "ssh.service");
	struct agent_record record;
	const struct sideband_cgroup *found = (void *)&record.sideband;

	CHECK_EQUAL(decode(&made, &record), made.size);
	REQUIRE(record.sideband.head.size && found->head.type == SIDEBAND_CGROUP);
	CHECK_EQUAL(found->head.pid, 1);
	CHECK_EQUAL(found->id, 4711);
	CHECK_STRING(found->path, "/system.slice/ssh.service");
	CHECK_EQUAL(decode(&relative, &record), relative.size);
	CHECK_EQUAL(record.sideband.head.size, 0);
	/* An end in the middle of the path. */
	made.size =
		sizeof(struct perf_event_header) + sizeof(id) + 8 + sizeof(struct agent_record_end);
	((struct perf_event_header *)(void *)made.bytes)->size = (uint16_t)made.size;
	CHECK_EQUAL(decode(&made, &record), made.size);
	CHECK_EQUAL(record.sideband.head.size, 0);
}
