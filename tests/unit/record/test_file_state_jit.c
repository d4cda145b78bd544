/* SPDX-License-Identifier: Apache-2.0 */
/* Functions generated at run time in a file, without enough memory for all of them. */
#include "vmm/record/file_state_parts.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"

#define MS        1000000ull
#define PARENT    42u
#define CHILD     43u
#define ADDRESS   0x1000ull
#define LENGTH    0x100ull
#define FUNCTIONS 8

/* A reader of the file: has it a function at the addresses of each process? */
struct reader {
	bool has[2][FUNCTIONS];
};

static int read_record(void *context, const struct sideband *record)
{
	const struct sideband_mmap *mmap = (const void *)record;
	struct reader *reader = context;

	CHECK_EQUAL(record->type, SIDEBAND_MMAP);
	for (uint64_t i = 0; i < FUNCTIONS; i++) {
		uint64_t address = ADDRESS + i * LENGTH;

		if (address >= mmap->start && address < mmap->start + mmap->length)
			reader->has[record->pid - PARENT][i] = strcmp(mmap->name, "//anon");
	}
	return 0;
}

static struct jit_code *make_code(void)
{
	struct jit_code *code = jit_code_new(NULL);
	struct sideband_jit_map map = { .head = { .size = sizeof(map),
						  .type = SIDEBAND_JIT_MAP,
						  .flags = SIDEBAND_JIT_BEGIN,
						  .time = 100 * MS,
						  .pid = PARENT,
						  .tid = PARENT },
					.since = 10 * MS };
	struct sideband round = sideband_head(SIDEBAND_ROUND, sizeof(round), 200 * MS, 0);

	jit_code_apply(code, &map.head);
	for (uint64_t i = 0; i < FUNCTIONS; i++) {
		uint64_t bytes[16] = { 0 };
		struct sideband_jit_code *line = (struct sideband_jit_code *)bytes;

		line->head = map.head;
		line->head.flags = 0;
		line->head.type = SIDEBAND_JIT_CODE;
		line->head.size = sideband_size(sizeof(*line), "function");
		line->start = ADDRESS + i * LENGTH;
		line->length = LENGTH;
		line->since = 10 * MS;
		strcpy(line->name, "function");
		jit_code_apply(code, &line->head);
	}
	jit_code_apply(code, &round);
	return code;
}

static void take_samples(struct file_jit *jit, struct jit_code *code)
{
	static const union {
		struct resolver_image image;
		char bytes[sizeof(struct resolver_image) + 8];
	} anonymous = {
		.bytes = { [offsetof(struct resolver_image, name)] = '/', '/', 'a', 'n', 'o', 'n' }
	};

	for (uint64_t i = 0; i < FUNCTIONS; i++) {
		struct sample sample = { .time = 150 * MS,
					 .pid = PARENT,
					 .tid = PARENT,
					 .cpl = 3,
					 .rip = ADDRESS + i * LENGTH };

		const struct attributed_sample attributed = {
			.sample = &sample,
			.mapping = { .verdict = RESOLVER_REPORTED,
				     .image = &anonymous.image,
				     .end = UINT64_MAX },
		};

		CHECK_EQUAL(file_jit_sample(jit, code, &attributed), 0);
	}
}

static void fork_at(struct reader *reader, struct file_jit *jit)
{
	const struct sideband_fork fork = { .head = sideband_head(SIDEBAND_FORK, sizeof(fork),
								  160 * MS, CHILD),
					    .parent_pid = PARENT,
					    .parent_tid = PARENT };

	memcpy(reader->has[1], reader->has[0], sizeof(reader->has[0]));
	CHECK_EQUAL(file_jit_written(jit, &fork.head), 0);
}

/* In the middle of a function: what is left of it is two ranges. */
static void map_all(struct file_jit *jit)
{
	uint64_t bytes[16] = { 0 };
	struct sideband_mmap *mmap = (struct sideband_mmap *)bytes;

	mmap->head =
		sideband_head(SIDEBAND_MMAP, sideband_size(sizeof(*mmap), "/f"), 170 * MS, PARENT);
	mmap->start = ADDRESS + LENGTH / 2;
	mmap->length = LENGTH / 4;
	CHECK_EQUAL(file_jit_written(jit, &mmap->head), 0);
}

static int count(const bool *has)
{
	int sum = 0;

	for (int i = 0; i < FUNCTIONS; i++)
		sum += has[i];
	return sum;
}

/* The more memory there is, the more a child inherits; the rest is written as anonymous. */
TEST(file_state_jit, what_cannot_be_remembered_of_a_fork_is_taken_back)
{
	int least = FUNCTIONS, most = 0;

	for (size_t limit = 0; limit < 4000; limit += 40) {
		struct jit_code *code = make_code();
		struct guest_account account;
		struct reader reader = { 0 };
		struct file_jit *jit;

		guest_account_init(&account, limit);
		jit = file_jit_new(&account, &(struct file_emit){ read_record, &reader });
		take_samples(jit, code);
		fork_at(&reader, jit);
		CHECK(count(reader.has[1]) <= count(reader.has[0]));
		if (count(reader.has[0]) == FUNCTIONS) {
			least = count(reader.has[1]) < least ? count(reader.has[1]) : least;
			most = count(reader.has[1]) > most ? count(reader.has[1]) : most;
		}
		map_all(jit);
		file_jit_free(jit);
		CHECK_EQUAL(atomic_load(&account.used), 0);
		jit_code_free(code);
	}
	CHECK_EQUAL(least, 0);
	CHECK_EQUAL(most, FUNCTIONS);
}
