/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mappings in a file, compared with a simple reader: for each byte of a small address space,
 * the latest record.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/record/file_state_parts.h"
#include "vmm/resolve/resolver_decision.h"

#define BYTES     64u
#define PROCESSES 3u
#define UNNAMED   7u

struct reader {
	uint32_t image_at[PROCESSES][BYTES]; /* 0: none */
	uint64_t start_at[PROCESSES][BYTES];
	unsigned int maps, unmaps;
};

static int set(struct reader *reader, uint32_t pid, uint64_t start, uint64_t end, uint32_t image)
{
	CHECK(pid && pid <= PROCESSES && start < end && end <= BYTES);
	for (uint64_t i = start; i < end; i++) {
		reader->image_at[pid - 1][i] = image;
		reader->start_at[pid - 1][i] = start;
	}
	return 0;
}

static int read_record(void *context, const struct sideband *record)
{
	const struct sideband_munmap *munmap = (const void *)record;
	const struct sideband_mmap *mmap = (const void *)record;
	struct reader *reader = context;

	if (record->type == SIDEBAND_MUNMAP) {
		reader->unmaps++;
		return set(reader, record->pid, munmap->start, munmap->start + munmap->length, 0);
	}
	reader->maps++;
	return set(reader, record->pid, mmap->start, mmap->start + mmap->length,
		   (uint32_t)mmap->inode);
}

/* Image UNNAMED is not in it. */
static struct image_catalog make_catalog(void)
{
	struct image_catalog catalog = { .count = 0 };

	for (uint32_t i = 1; i < UNNAMED; i++) {
		union {
			struct sideband_mmap mmap;
			uint8_t bytes[sizeof(struct sideband_mmap) + 8];
		} file = { .mmap = { .inode = i } };

		CHECK_EQUAL(image_catalog_add(&catalog, i, &file.mmap), 0);
	}
	return catalog;
}

/* No source reports anything. */
static int check(struct file_mappings *mappings, const struct image_catalog *catalog,
		 struct sample *sample, bool *late)
{
	static const struct resolver_processes none;
	const struct resolver_evidence evidence = { .processes = &none,
						    .images = catalog,
						    .reported_until = UINT64_MAX };
	struct resolver_mapping user[SAMPLE_CALLCHAIN_MAX];
	struct losses losses;
	const struct attributed_sample attributed =
		resolver_decide(&evidence, sample, user, &losses);

	return file_mappings_sample(mappings, &attributed, false, late);
}

struct small_sample {
	struct sample sample;
	uint64_t callchain[4];
	struct sample_mapping mappings[2];
};

static unsigned int below(unsigned int limit)
{
	return (unsigned int)rand() % limit;
}

/* Mappings lie in two halves, so that they do not overlap in one sample. */
static void make_sample(struct small_sample *small, uint64_t time)
{
	memset(small, 0, sizeof(*small));
	small->sample.time = time;
	small->sample.pid = small->sample.tid = 1 + below(PROCESSES);
	small->sample.cpl = 3;
	small->sample.user_depth = 4;
	for (int i = 0; i < 4; i++)
		small->callchain[i] = below(BYTES);
	small->sample.rip = small->callchain[0];
	small->sample.mappings = (uint8_t)below(3);
	for (uint16_t i = 0; i < small->sample.mappings; i++) {
		uint64_t start = i * BYTES / 2 + below(BYTES / 2 - 1);

		small->mappings[i] =
			(struct sample_mapping){ .start = start,
						 .end = start + 1 +
							below(BYTES / 2 - start % (BYTES / 2)),
						 .image = 1 + below(UNNAMED) };
		if (small->mappings[i].end > (i + 1) * BYTES / 2)
			small->mappings[i].end = (i + 1) * BYTES / 2;
	}
}

/* A reader finds the sample's mappings at each of its addresses. */
static void check_sample(const struct reader *reader, const struct small_sample *small)
{
	for (int i = 0; i < 4; i++) {
		uint64_t address = small->callchain[i];
		uint32_t expected = 0;

		for (uint16_t j = 0; j < small->sample.mappings; j++)
			if (address >= small->mappings[j].start &&
			    address < small->mappings[j].end && small->mappings[j].image != UNNAMED)
				expected = small->mappings[j].image;
		CHECK_EQUAL(reader->image_at[small->sample.pid - 1][address], expected);
	}
}

struct written {
	uint64_t latest; /* ns */
	unsigned int maps, unmaps;
};

static int note(uint64_t time, uint64_t *latest)
{
	CHECK(time >= *latest);
	*latest = time;
	return 0;
}

static int note_record(void *context, const struct sideband *record)
{
	struct written *written = context;

	written->maps += record->type == SIDEBAND_MMAP;
	written->unmaps += record->type == SIDEBAND_MUNMAP;
	return note(record->time, &written->latest);
}

/* Two processes whose ids share a slot: records are ordered by time whichever they belong to. */
TEST(file_state_mappings, a_late_sample_takes_nothing_back_from_another_process)
{
	struct written written = { .maps = 0 };
	struct image_catalog catalog = make_catalog();
	struct file_mappings *mappings =
		file_mappings_new(NULL, &catalog, &(struct file_emit){ note_record, &written });
	struct small_sample small = {
		.sample = { .time = 10, .pid = 5, .cpl = 3, .mappings = 1, .rip = 4 }
	};
	bool late;

	*sample_write_mappings(&small.sample) =
		(struct sample_mapping){ .start = 3, .end = 9, .image = 2 };
	CHECK_EQUAL(check(mappings, &catalog, &small.sample, &late), 0);
	CHECK(!late && written.maps == 1);
	small.sample.pid += 1 << 16;
	small.sample.time = 7;
	CHECK_EQUAL(check(mappings, &catalog, &small.sample, &late), 0);
	CHECK(late && written.maps == 1 && !written.unmaps);
	small.sample.time = 12;
	CHECK_EQUAL(check(mappings, &catalog, &small.sample, &late), 0);
	CHECK(!late && written.maps == 2 && written.unmaps == 1);
	/* The first again, from before it had to give up its place. */
	small.sample.pid = 5;
	small.sample.time = 11;
	CHECK_EQUAL(check(mappings, &catalog, &small.sample, &late), 0);
	CHECK(late && written.maps == 2);
	small.sample.mappings = 0;
	CHECK_EQUAL(check(mappings, &catalog, &small.sample, &late), 0);
	CHECK(late);
	file_mappings_free(mappings);
	image_catalog_free(&catalog);
}

TEST(file_state_mappings, a_reader_finds_the_mappings_of_each_sample)
{
	struct reader reader = { .maps = 0 };
	struct image_catalog catalog = make_catalog();
	struct file_mappings *mappings =
		file_mappings_new(NULL, &catalog, &(struct file_emit){ read_record, &reader });
	struct small_sample small;
	unsigned int maps;
	bool late;

	srand(1);
	for (uint64_t time = 1; time < 200000; time++) {
		make_sample(&small, time);
		CHECK_EQUAL(check(mappings, &catalog, &small.sample, &late), 0);
		CHECK(!late);
		check_sample(&reader, &small);
	}
	/* The same again is not written again. */
	maps = reader.maps + reader.unmaps;
	CHECK_EQUAL(check(mappings, &catalog, &small.sample, &late), 0);
	CHECK_EQUAL(reader.maps + reader.unmaps, maps);
	small.sample.time++;
	small.sample.mappings = 1;
	small.mappings[0] = (struct sample_mapping){ .start = 3, .end = 9, .image = 2 };
	small.callchain[0] = 5;
	CHECK_EQUAL(check(mappings, &catalog, &small.sample, &late), 0);
	small.sample.time--;
	CHECK_EQUAL(check(mappings, &catalog, &small.sample, &late), 0);
	CHECK(late);
	file_mappings_free(mappings);
	image_catalog_free(&catalog);
}
