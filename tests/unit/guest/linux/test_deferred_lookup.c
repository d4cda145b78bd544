/* SPDX-License-Identifier: Apache-2.0 */
/* A stop whose deadline has already passed, and what is found for its sample afterwards. */
#include "vmm/guest/linux/deferred_lookup.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/task_guest.h"
#include "tests/unit/user_guest.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/linux/vma.h"

#define PROGRAM 0x400000ull
#define LIBRARY 0x7f0000000000ull
#define SIZE    0x3000ull

/*
 * A sample in PROGRAM, called by LIBRARY, whose deadline passed after the first lookup, or before
 * it.
 */
struct cut {
	struct user_guest guest;
	struct sample *taken, *whole;
};

static uint64_t file_at(struct user_guest *guest, const char *name, uint64_t number)
{
	return user_guest_file(guest, guest->root_mount,
			       user_guest_dentry(guest, guest->root, name), number);
}

static void put_changes(struct user_guest *guest, uint64_t space, uint64_t changes)
{
	user_guest_put(guest, guest->mm + guest->kernel.vmas.mm_space, space);
	user_guest_put(guest, guest->mm + guest->kernel.vmas.mm_changes, changes);
}

static bool take_after(struct cut *cut, bool first_is_found)
{
	struct guest_task task = { .mm = cut->guest.mm };
	struct sample_deferred noted;
	struct user_map map;
	bool is_noted;

	user_map_begin(&map, &cut->guest.kernel, &cut->guest.guest.view, cut->guest.mm);
	if (first_is_found)
		CHECK(user_map_find(&map, PROGRAM));
	map.memory.deadline = 1;
	CHECK(!user_map_find(&map, LIBRARY));
	CHECK_EQUAL(!!user_map_find(&map, PROGRAM), first_is_found);
	CHECK(map.memory.timed_out);
	is_noted = deferred_lookup_note(&cut->guest.kernel, &cut->guest.guest.view, &task,
					DEFERRED_LOOKUP_MAPPINGS, &noted);
	*cut->taken = (struct sample){ .event = 1,
				       .user_depth = 2,
				       .flags = SAMPLE_LOOKUP_INCOMPLETE | SAMPLE_USER_TRUNCATED,
				       .deferred = is_noted };
	cut->taken->callchain[0] = PROGRAM;
	cut->taken->callchain[1] = LIBRARY + 0x1000;
	cut->taken->mappings =
		(uint16_t)user_map_to_sample(&map, sample_write_mappings(cut->taken));
	CHECK_EQUAL(cut->taken->mappings, first_is_found);
	sample_write_hit(cut->taken)->address = 0x1234;
	if (is_noted)
		*sample_write_deferred(cut->taken) = noted;
	return is_noted;
}

static bool take(struct cut *cut)
{
	return take_after(cut, true);
}

static void make_cut(struct cut *cut)
{
	cut->taken = calloc(1, DEFERRED_LOOKUP_SIZE + sizeof(struct sample_deferred));
	cut->whole = calloc(1, DEFERRED_LOOKUP_SIZE);
	REQUIRE(cut->taken && cut->whole);
	user_guest_make(&cut->guest, true);
	user_guest_map(&cut->guest, PROGRAM, PROGRAM + SIZE, 0, VMA_READ | VMA_EXEC,
		       file_at(&cut->guest, "program", 7));
	user_guest_map(&cut->guest, LIBRARY, LIBRARY + SIZE, 2, VMA_READ | VMA_EXEC,
		       file_at(&cut->guest, "library", 8));
	user_guest_build(&cut->guest);
	put_changes(&cut->guest, 5, 100);
}

static void free_cut(struct cut *cut)
{
	user_guest_free(&cut->guest);
	free(cut->taken);
	free(cut->whole);
}

static void lookup(struct cut *cut, const struct guest_kernel *kernel)
{
	deferred_lookup(kernel, &cut->guest.guest.view, cut->taken, cut->whole);
}

static void check_dropped(struct cut *cut, const struct guest_kernel *kernel)
{
	lookup(cut, kernel);
	CHECK_EQUAL(cut->whole->mappings, 1);
	CHECK_EQUAL(cut->whole->flags, SAMPLE_LOOKUP_INCOMPLETE | SAMPLE_USER_TRUNCATED);
	CHECK(!cut->whole->deferred);
	CHECK_EQUAL(sample_hit(cut->whole)->address, 0x1234);
}

TEST(deferred_lookup, finds_the_mappings)
{
	FIXTURE(struct cut, cut, make_cut, free_cut);
	REQUIRE(take(&cut));
	lookup(&cut, &cut.guest.kernel);
	CHECK_EQUAL(cut.whole->mappings, 2);
	CHECK_EQUAL(sample_mappings(cut.whole)[0].start, PROGRAM);
	CHECK_EQUAL(sample_mappings(cut.whole)[1].start, LIBRARY);
	CHECK_EQUAL(sample_mappings(cut.whole)[1].offset, 0x2000);
	CHECK_EQUAL(cut.whole->flags, SAMPLE_USER_TRUNCATED);
	CHECK(!cut.whole->deferred);
	CHECK_EQUAL(cut.whole->callchain[1], LIBRARY + 0x1000);
	CHECK_EQUAL(sample_hit(cut.whole)->address, 0x1234);
}

TEST(deferred_lookup, finds_the_mapping_of_rip)
{
	FIXTURE(struct cut, cut, make_cut, free_cut);
	REQUIRE(take_after(&cut, false));
	lookup(&cut, &cut.guest.kernel);
	CHECK_EQUAL(cut.whole->mappings, 2);
	CHECK_EQUAL(sample_mappings(cut.whole)[0].start, PROGRAM);
	CHECK_EQUAL(cut.whole->flags, SAMPLE_USER_TRUNCATED);
	put_changes(&cut.guest, 5, 101);
	lookup(&cut, &cut.guest.kernel);
	CHECK_EQUAL(cut.whole->mappings, 0);
	CHECK_EQUAL(cut.whole->flags, SAMPLE_LOOKUP_INCOMPLETE | SAMPLE_USER_TRUNCATED);
}

TEST(deferred_lookup, drops_mappings_that_may_have_changed)
{
	FIXTURE(struct cut, cut, make_cut, free_cut);
	REQUIRE(take(&cut));
	put_changes(&cut.guest, 5, 101);
	check_dropped(&cut, &cut.guest.kernel);
	/* An address space that reuses the memory of an ended one. */
	put_changes(&cut.guest, 6, 100);
	check_dropped(&cut, &cut.guest.kernel);
	put_changes(&cut.guest, 5, 100);
	check_dropped(&cut, NULL);
	lookup(&cut, &cut.guest.kernel);
	CHECK_EQUAL(cut.whole->mappings, 2);
}

/* A note is valid only for its own tables. */
TEST(deferred_lookup, makes_no_lookup_in_another_kernel)
{
	struct guest_kernel other;

	FIXTURE(struct cut, cut, make_cut, free_cut);
	REQUIRE(take(&cut));
	other = cut.guest.kernel;
	REQUIRE_EQUAL(user_images_create(&other.images), 0);
	check_dropped(&cut, &other);
	user_images_free(other.images);
}

TEST(deferred_lookup, a_mapping_that_grew_over_another_does_not_replace_it)
{
	FIXTURE(struct cut, cut, make_cut, free_cut);
	REQUIRE(take(&cut));
	sample_write_mappings(cut.taken)[0].end = LIBRARY + 0x1000;
	lookup(&cut, &cut.guest.kernel);
	CHECK_EQUAL(cut.whole->mappings, 1);
}

TEST(deferred_lookup, needs_the_number_of_tlb_flushes)
{
	FIXTURE(struct cut, cut, make_cut, free_cut);
	cut.guest.kernel.vmas.has_changes = false;
	CHECK(!take(&cut));
}

/* --- cgroups ------------------------------------------------------------------------ */

struct moved {
	struct task_guest guest;
	struct guest_kernel kernel;
	struct sample taken[2];
};

static void make_moved(struct moved *moved)
{
	struct guest_task task = { .at = DIRECT + TASK(1) };
	struct sample_deferred noted;

	memset(moved, 0, sizeof(*moved));
	task_guest_make(&moved->guest);
	task_guest_put_cgroup(&moved->guest, 0, 0, 1, "");
	task_guest_put_cgroup(&moved->guest, 1, 0, 17, "system.slice");
	task_guest_put_cgroup(&moved->guest, 2, 0, 18, "user.slice");
	task_guest_enter_cgroup(&moved->guest, 1, 1);
	moved->kernel.paging = moved->guest.kernel;
	moved->kernel.tasks = task_guest_layout;
	REQUIRE_EQUAL(guest_cgroups_create(&moved->kernel.cgroups), 0);
	REQUIRE(deferred_lookup_note(&moved->kernel, &moved->guest.guest.view, &task,
				     DEFERRED_LOOKUP_CGROUP, &noted));
	moved->taken[0] =
		(struct sample){ .flags = SAMPLE_LOOKUP_INCOMPLETE, .deferred = 1, .tid = 702 };
	*sample_write_deferred(moved->taken) = noted;
}

static void free_moved(struct moved *moved)
{
	guest_cgroups_free(moved->kernel.cgroups);
	task_guest_free(&moved->guest);
}

TEST(deferred_lookup, finds_the_cgroup)
{
	struct kernel_memory memory;
	struct sample whole[16];

	FIXTURE(struct moved, moved, make_moved, free_moved);
	deferred_lookup(&moved.kernel, &moved.guest.guest.view, moved.taken, whole);
	CHECK_EQUAL(whole->cgroup, 17);
	CHECK_EQUAL(whole->cgroups, guest_cgroups_generation(moved.kernel.cgroups));
	CHECK_EQUAL(whole->flags, 0);
	memory = (struct kernel_memory){ .view = &moved.guest.guest.view,
					 .paging = &moved.kernel.paging };
	guest_cgroups_load(moved.kernel.cgroups, &memory, &moved.kernel.tasks.cgroups);
	CHECK_STRING(guest_cgroups_path(moved.kernel.cgroups, 17), "/system.slice");
}

TEST(deferred_lookup, drops_the_cgroup_of_a_task_that_was_moved)
{
	struct sample whole[16];

	FIXTURE(struct moved, moved, make_moved, free_moved);
	task_guest_enter_cgroup(&moved.guest, 1, 2);
	deferred_lookup(&moved.kernel, &moved.guest.guest.view, moved.taken, whole);
	CHECK_EQUAL(whole->cgroup, 0);
	CHECK_EQUAL(whole->flags, SAMPLE_LOOKUP_INCOMPLETE);
}

/* Its memory and that of its css_set may have been reused. */
TEST(deferred_lookup, drops_the_cgroup_of_a_task_that_has_ended)
{
	struct sample whole[16];

	FIXTURE(struct moved, moved, make_moved, free_moved);
	task_guest_put(&moved.guest, TASK(1) + task_guest_layout.cgroups.task_users, 0);
	deferred_lookup(&moved.kernel, &moved.guest.guest.view, moved.taken, whole);
	CHECK_EQUAL(whole->cgroup, 0);
	task_guest_put_task(&moved.guest, 1, 700, 703, "another");
	deferred_lookup(&moved.kernel, &moved.guest.guest.view, moved.taken, whole);
	CHECK_EQUAL(whole->cgroup, 0);
	task_guest_put_task(&moved.guest, 1, 700, 702, "the same");
	deferred_lookup(&moved.kernel, &moved.guest.guest.view, moved.taken, whole);
	CHECK_EQUAL(whole->cgroup, 17);
}
