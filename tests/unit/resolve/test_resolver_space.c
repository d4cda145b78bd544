/* SPDX-License-Identifier: Apache-2.0 */
/* One address space against brute force: records in any order of time. */
#include <errno.h>
#include <stdlib.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/timeline.h"
#include "vmm/resolve/resolver_space.h"

#define RECORDS 60u
#define TIMES   1000u
#define PAGES   16u

struct record {
	struct resolver_piece piece;
	bool taken;
};

struct setting {
	struct resolver_store store;
	struct resolver_space space;
	struct record records[RECORDS];
	uint64_t state;
};

static struct resolver_image *image_of(struct setting *setting, uint64_t number)
{
	struct {
		struct sideband_mmap mmap;
		char name[8];
	} record = { .mmap.inode = number, .name = "/image" };

	return resolver_image_of_mmap(&setting->store, &record.mmap);
}

/* A quarter of them end a mapping. */
static void make_records(struct setting *setting)
{
	for (uint64_t i = 0; i < RECORDS; i++) {
		uint64_t start = timeline_random(&setting->state, PAGES);

		setting->records[i].taken = false;
		setting->records[i].piece = (struct resolver_piece){
			.start = start,
			.end = start + 1 +
			       timeline_random(&setting->state, PAGES - (uint32_t)start),
			.from = 1 + timeline_random(&setting->state, TIMES),
			.offset = 100 * i,
			.image = timeline_random(&setting->state, 4) ? image_of(setting, i + 1)
								     : NULL,
		};
	}
}

/* The latest record up to TIME; of those of one time the one that was taken last. */
static const struct resolver_piece *brute_force(const struct setting *setting, uint64_t address,
						uint64_t time)
{
	const struct resolver_piece *found = NULL;

	for (size_t i = 0; i < RECORDS; i++) {
		const struct record *record = &setting->records[i];

		if (record->taken && record->piece.from <= time && address >= record->piece.start &&
		    address < record->piece.end && (!found || record->piece.from >= found->from))
			found = &record->piece;
	}
	return found && found->image ? found : NULL;
}

static void check_all(const struct setting *setting, uint64_t first_time)
{
	for (uint64_t address = 0; address <= PAGES; address++)
		for (uint64_t time = first_time; time <= TIMES + 1; time += 7) {
			const struct resolver_piece *right = brute_force(setting, address, time);
			const struct resolver_piece *found =
				resolver_space_find(&setting->space, address, time);

			REQUIRE_EQUAL(found ? found->image->inode : 0,
				      right ? right->image->inode : 0);
			if (found)
				REQUIRE_EQUAL(address - found->start + found->offset,
					      address - right->start + right->offset);
		}
}

static void check_child(struct setting *setting)
{
	struct resolver_space child = { 0 };
	uint64_t time = timeline_random(&setting->state, TIMES);

	CHECK_EQUAL(resolver_space_inherit(&child, &setting->space, &setting->store, time), 0);
	for (uint64_t address = 0; address <= PAGES; address++) {
		const struct resolver_piece *right = brute_force(setting, address, time);
		const struct resolver_piece *found =
			resolver_space_find(&child, address, TIMES + 1);

		CHECK_EQUAL(found ? found->image->inode : 0, right ? right->image->inode : 0);
	}
	resolver_space_free(&child, &setting->store);
}

static void run(uint64_t seed)
{
	struct setting setting = { .state = seed };

	make_records(&setting);
	for (size_t i = 0; i < RECORDS; i++) {
		CHECK_EQUAL(resolver_space_map(&setting.space, &setting.store,
					       &setting.records[i].piece),
			    0);
		setting.records[i].taken = true;
		if (i % 10 == 9)
			check_all(&setting, 0);
	}
	check_child(&setting);
	for (uint64_t horizon = 0; horizon <= TIMES; horizon += 250) {
		resolver_space_forget(&setting.space, &setting.store, horizon);
		check_all(&setting, horizon);
	}
	resolver_space_forget(&setting.space, &setting.store, TIMES + 1);
	CHECK(!resolver_space_has_past(&setting.space));
	resolver_space_free(&setting.space, &setting.store);
	for (size_t i = 0; i < RECORDS; i++)
		resolver_image_release(&setting.store, setting.records[i].piece.image);
	CHECK_EQUAL(setting.store.images.count, 0);
	CHECK_EQUAL(setting.store.bytes, 0);
	resolver_table_free(&setting.store.images, NULL);
}

TEST(resolver_space, is_right_for_records_in_any_order)
{
	for (uint64_t seed = 1; seed <= 300; seed++)
		run(seed);
}

TEST(resolver_space, refuses_more_pieces_than_linux_allows)
{
	struct setting setting = { 0 };
	struct resolver_piece piece = { .image = image_of(&setting, 1) };
	int error = 0;

	for (uint64_t i = 0; i < 100000 && !error; i++) {
		piece.start = 2 * i;
		piece.end = 2 * i + 1;
		error = resolver_space_map(&setting.space, &setting.store, &piece);
	}
	CHECK_EQUAL(error, -E2BIG);
	CHECK(resolver_space_find(&setting.space, 0, 0));
	resolver_space_free(&setting.space, &setting.store);
	resolver_image_release(&setting.store, piece.image);
	resolver_table_free(&setting.store.images, NULL);
}

/* A guest that maps one page again and again. */
TEST(resolver_space, keeps_a_bounded_number_of_earlier_mappings)
{
	struct setting *setting = calloc(1, sizeof(*setting));
	struct resolver_image *image = image_of(setting, 1);

	for (uint64_t time = 1; time <= 2 * RESOLVER_PAST_MAX; time++) {
		const struct resolver_piece piece = {
			.start = 1, .end = 2, .from = time, .offset = time, .image = image
		};

		REQUIRE_EQUAL(resolver_space_map(&setting->space, &setting->store, &piece), 0);
	}
	CHECK_EQUAL(setting->space.count, 1);
	CHECK_EQUAL(setting->space.past_count, RESOLVER_PAST_MAX);
	CHECK_EQUAL(resolver_space_find(&setting->space, 1, 7)->offset, 7);
	/* Those beyond the limit are unknown, not taken for others. */
	CHECK(!resolver_space_find(&setting->space, 1, RESOLVER_PAST_MAX + 7));
	resolver_space_forget(&setting->space, &setting->store, 2 * RESOLVER_PAST_MAX);
	CHECK_EQUAL(setting->space.past_count, 0);
	resolver_space_free(&setting->space, &setting->store);
	resolver_image_release(&setting->store, image);
	resolver_table_free(&setting->store.images, NULL);
	free(setting);
}
