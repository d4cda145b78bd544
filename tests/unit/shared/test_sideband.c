/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/shim/test.h"

/* One byte more than the largest record, so that each can be laid too large. */
static union {
	struct sideband head;
	struct sideband_comm comm;
	struct sideband_mmap mmap;
	struct sideband_module module;
	uint8_t bytes[SIDEBAND_SIZE_MAX + 8];
} record;

static struct span whole(void)
{
	return span_of(&record, record.head.size);
}

static void make_comm(const char *name)
{
	memset(&record, 0, sizeof(record));
	record.comm.head = (struct sideband){
		.size = sizeof(record.comm), .type = SIDEBAND_COMM, .pid = 7, .tid = 8
	};
	strcpy(record.comm.comm, name);
}

static void make_mmap(const char *name)
{
	memset(&record, 0, sizeof(record));
	record.mmap.head = (struct sideband){ .size = sideband_size(sizeof(record.mmap), name),
					      .type = SIDEBAND_MMAP };
	record.mmap.start = 0x400000;
	record.mmap.length = 0x1000;
	strcpy(record.mmap.name, name);
}

TEST(sideband, takes_whole_records)
{
	make_comm("sh");
	CHECK(sideband_check(whole()) == &record.head);
	make_mmap("/bin/sh");
	CHECK(sideband_check(whole()) == &record.head);
	CHECK(sideband_check(span_of(&record, sizeof(record))) == &record.head);
}

TEST(sideband, refuses_truncated_records)
{
	make_mmap("/bin/sh");
	for (size_t size = 0; size < record.head.size; size++)
		CHECK(!sideband_check(span_of(&record, size)));
}

TEST(sideband, refuses_impossible_heads)
{
	const uint32_t sizes[] = { 0, 8, sizeof(record.comm) - 8, sizeof(record.comm) + 1,
				   SIDEBAND_SIZE_MAX + 8 };
	const uint16_t types[] = { 0, SIDEBAND_JIT_CODE + 1, UINT16_MAX };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		make_comm("sh");
		record.head.size = sizes[i];
		CHECK(!sideband_check(span_of(&record, sizeof(record))));
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		make_comm("sh");
		record.head.type = types[i];
		CHECK(!sideband_check(whole()));
	}
	make_comm("sh");
	record.head.flags = 1 << 15;
	CHECK(!sideband_check(whole()));
	CHECK(!sideband_check(span_of(record.bytes + 4, sizeof(record) - 4)));
}

/* Numbers that no task can have mean unknown. */
TEST(sideband, refuses_impossible_tasks)
{
	make_comm("sh");
	record.head.pid = record.head.tid = SAMPLE_TASK_LIMIT - 1;
	CHECK(sideband_check(whole()));
	record.head.pid++;
	CHECK(!sideband_check(whole()));
	record.head.pid--;
	record.head.tid++;
	CHECK(!sideband_check(whole()));
}

TEST(sideband, strings_must_end)
{
	make_comm("");
	memset(record.comm.comm, 'a', sizeof(record.comm.comm));
	CHECK(!sideband_check(whole()));
	make_mmap("/bin/sh");
	memset(record.mmap.name, 'a', record.head.size - sizeof(record.mmap));
	CHECK(!sideband_check(whole()));
	make_mmap("");
	record.head.size = sizeof(record.mmap);
	CHECK(!sideband_check(whole()));
}

TEST(sideband, ranges_must_end)
{
	make_mmap("/bin/sh");
	record.mmap.length = 0;
	CHECK(!sideband_check(whole()));
	record.mmap.length = UINT64_MAX;
	CHECK(!sideband_check(whole()));
	record.mmap.length = 1;
	record.mmap.start = UINT64_MAX;
	CHECK(!sideband_check(whole()));
	record.mmap.start--;
	CHECK(sideband_check(whole()));
	record.mmap.build_id_size = SIDEBAND_BUILD_ID_MAX + 1;
	CHECK(!sideband_check(whole()));
}

TEST(sideband, a_program_in_a_file_of_memory_has_a_build_id)
{
	CHECK(sideband_is_anonymous("//anon", false));
	CHECK(sideband_is_anonymous("[anon:code]", false));
	CHECK(sideband_is_anonymous("/memfd:doublemapper (deleted)", false));
	CHECK(!sideband_is_anonymous("/memfd:program (deleted)", true));
	CHECK(!sideband_is_anonymous("/bin/true", false));
}
