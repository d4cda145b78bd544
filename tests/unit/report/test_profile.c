/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/pool.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/report/profile_frame_cache.h"
#include "vmm/report/profile_image.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/report/profile_timeline.h"

static void check_shown(const char *text, const char *shown)
{
	struct pool pool = { 0 };

	CHECK_STRING(pool_string(&pool, text), shown);
	pool_free(&pool);
}

TEST(profile, keeps_each_name_once)
{
	struct pool pool = { 0 };
	char text[32];
	const char *first = pool_string(&pool, "do_syscall_64");

	for (int i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), "function_%d", i);
		CHECK_STRING(pool_string(&pool, text), text);
	}
	CHECK(pool_string(&pool, "do_syscall_64") == first);
	pool_free(&pool);
}

TEST(profile, makes_names_safe_to_show)
{
	check_shown("plain", "plain");
	check_shown("", "");
	check_shown("a\033[2Jb\nc\td\x7f", "a?[2Jb?c?d?");
	check_shown("gr\xc3\xbc\xc3\x9f dich \xe4\xb8\x96\xf0\x9f\x94\xa5",
		    "gr\xc3\xbc\xc3\x9f dich \xe4\xb8\x96\xf0\x9f\x94\xa5");
	check_shown("\xe2\x80\xaetxt", "?txt"); /* U+202E reverses the direction */
	check_shown("\xc2\x9b"
		    "2J",
		    "?2J");                           /* U+009B is a control sequence too */
	check_shown("\xff\xc0\x80\xe2\x80", "?????"); /* invalid UTF-8, the last one truncated */
	check_shown("\xed\xa0\x80", "???");           /* half of a surrogate pair */
}

/* A timeline with images that differ by address only. */
struct lives {
	struct pool pool;
	struct profile_timeline *timeline;
	struct profile_image images[4];
};

static void lives_make(struct lives *lives)
{
	*lives = (struct lives){ 0 };
	lives->timeline = profile_timeline_new(&lives->pool);
}

static void lives_free(struct lives *lives)
{
	profile_timeline_free(lives->timeline);
	pool_free(&lives->pool);
}

static void map(struct lives *lives, int32_t pid, uint64_t time, uint64_t start, uint64_t size,
		int image)
{
	CHECK_EQUAL(profile_timeline_map(lives->timeline, false, pid, time, start, size, 0,
					 &lives->images[image]),
		    0);
}

/* The index of the image at ADDRESS, -1 without one. */
static int image_at(const struct lives *lives, int32_t pid, uint64_t time, uint64_t address)
{
	const struct profile_space *space =
		profile_timeline_space(lives->timeline, false, pid, time);
	const struct profile_mapping *mapping =
		space ? profile_space_find(space, profile_space_epoch(space, time), address) : NULL;

	return mapping ? (int)(mapping->image - lives->images) : -1;
}

TEST(profile, finds_what_was_mapped_at_the_time)
{
	struct lives lives;

	lives_make(&lives);
	/* Not sorted by time, as in files with records of several CPUs. */
	map(&lives, 7, 200, 0x1000, 0x1000, 1);
	map(&lives, 7, 100, 0x1000, 0x3000, 0);
	REQUIRE_EQUAL(profile_timeline_finish(lives.timeline), 0);
	CHECK_EQUAL(image_at(&lives, 7, 50, 0x1000), -1);
	CHECK_EQUAL(image_at(&lives, 7, 100, 0x1000), 0);
	CHECK_EQUAL(image_at(&lives, 7, 199, 0x1fff), 0);
	CHECK_EQUAL(image_at(&lives, 7, 200, 0x1fff), 1);
	CHECK_EQUAL(image_at(&lives, 7, 200, 0x2000), 0);
	CHECK_EQUAL(image_at(&lives, 7, 200, 0x4000), -1);
	CHECK_EQUAL(image_at(&lives, 8, 200, 0x1000), -1);
	lives_free(&lives);
}

TEST(profile, inherits_mappings_of_the_parent)
{
	struct lives lives;

	lives_make(&lives);
	map(&lives, 1, 10, 0x1000, 0x1000, 0);
	CHECK_EQUAL(profile_timeline_fork(lives.timeline, 2, 2, 1, 1, 20, false), 0);
	map(&lives, 1, 30, 0x1000, 0x1000, 1);
	map(&lives, 2, 40, 0x5000, 0x1000, 2);
	REQUIRE_EQUAL(profile_timeline_finish(lives.timeline), 0);
	CHECK_EQUAL(image_at(&lives, 1, 50, 0x1000), 1);
	CHECK_EQUAL(image_at(&lives, 2, 50, 0x1000), 0);
	CHECK_EQUAL(image_at(&lives, 2, 50, 0x5000), 2);
	CHECK_EQUAL(image_at(&lives, 1, 50, 0x5000), -1);
	lives_free(&lives);
}

TEST(profile, separates_owners_of_one_pid)
{
	struct lives lives;

	lives_make(&lives);
	map(&lives, 2, 10, 0x1000, 0x1000, 0);
	CHECK_EQUAL(profile_timeline_fork(lives.timeline, 2, 2, 1, 1, 20, false), 0);
	map(&lives, 2, 30, 0x1000, 0x1000, 1);
	REQUIRE_EQUAL(profile_timeline_finish(lives.timeline), 0);
	CHECK_EQUAL(image_at(&lives, 2, 15, 0x1000), 0);
	CHECK_EQUAL(image_at(&lives, 2, 25, 0x1000), -1);
	CHECK_EQUAL(image_at(&lives, 2, 35, 0x1000), 1);
	lives_free(&lives);
}

TEST(profile, has_the_comm_of_that_time)
{
	struct lives lives;

	lives_make(&lives);
	CHECK_EQUAL(profile_timeline_comm(lives.timeline, 5, 10, "sh"), 0);
	CHECK_EQUAL(profile_timeline_comm(lives.timeline, 5, 30, "find"), 0);
	CHECK_EQUAL(profile_timeline_fork(lives.timeline, 5, 6, 5, 5, 20, false), 0);
	REQUIRE_EQUAL(profile_timeline_finish(lives.timeline), 0);
	CHECK_STRING(profile_timeline_comm_of(lives.timeline, 5, 29), "sh");
	CHECK_STRING(profile_timeline_comm_of(lives.timeline, 5, 30), "find");
	CHECK_STRING(profile_timeline_comm_of(lives.timeline, 6, 99), "sh");
	CHECK_STRING(profile_timeline_comm_of(lives.timeline, 7, 99), "");
	lives_free(&lives);
}

/* Sets the images' paths, which lives_make() leaves without files. */
static const char *program_at(const struct lives *lives, uint32_t pid, uint64_t time)
{
	const struct profile_image *image = profile_timeline_program(lives->timeline, pid, time);

	return image ? image->path : "";
}

TEST(profile, knows_which_program_a_process_runs)
{
	struct lives lives;

	lives_make(&lives);
	lives.images[0].path = "/bin/sh";
	lives.images[1].path = "/lib/libc.so";
	lives.images[2].path = "/bin/find";
	CHECK_EQUAL(profile_timeline_exec(lives.timeline, 1, 10), 0);
	map(&lives, 1, 11, 0x1000, 0x1000, 0);
	map(&lives, 1, 12, 0x8000, 0x1000, 1);
	CHECK_EQUAL(profile_timeline_fork(lives.timeline, 2, 2, 1, 1, 20, false), 0);
	CHECK_EQUAL(profile_timeline_exec(lives.timeline, 2, 30), 0);
	map(&lives, 2, 31, 0x1000, 0x1000, 2);
	/* 3 existed before, and maps more; pid 2 is reused for its child. */
	map(&lives, 3, 40, 0x1000, 0x1000, 1);
	CHECK_EQUAL(profile_timeline_fork(lives.timeline, 2, 2, 3, 3, 50, false), 0);
	map(&lives, 2, 51, 0x9000, 0x1000, 1);
	REQUIRE_EQUAL(profile_timeline_finish(lives.timeline), 0);
	CHECK_STRING(program_at(&lives, 1, 9), "");
	CHECK_STRING(program_at(&lives, 1, 10), "/bin/sh");
	CHECK_STRING(program_at(&lives, 1, 99), "/bin/sh");
	CHECK_STRING(program_at(&lives, 2, 25), "/bin/sh");
	CHECK_STRING(program_at(&lives, 2, 35), "/bin/find");
	CHECK_STRING(program_at(&lives, 2, 55), "");
	CHECK_STRING(program_at(&lives, 3, 99), "");
	CHECK_STRING(program_at(&lives, 4, 99), "");
	lives_free(&lives);
}

/* Inexact guest clock: the sample's mapping is from before the execve. */
TEST(profile, ignores_mappings_of_the_previous_program)
{
	struct lives lives;

	lives_make(&lives);
	lives.images[0] = (struct profile_image){ .path = "/bin/busybox", .name = "busybox" };
	lives.images[1] = (struct profile_image){ .path = "/lib/libc.so", .name = "libc.so" };
	lives.images[2] = (struct profile_image){ .path = "/bin/tasks", .name = "tasks" };
	CHECK_EQUAL(profile_timeline_exec(lives.timeline, 1, 10), 0);
	CHECK_EQUAL(profile_timeline_comm(lives.timeline, 1, 10, "sh"), 0);
	map(&lives, 1, 11, 0x1000, 0x1000, 0);
	for (uint32_t pid = 2; pid <= 3; pid++) {
		CHECK_EQUAL(profile_timeline_fork(lives.timeline, pid, pid, 1, 1, 20, false), 0);
		CHECK_EQUAL(profile_timeline_exec(lives.timeline, pid, 30), 0);
		CHECK_EQUAL(
			profile_timeline_comm(lives.timeline, pid, 30, pid == 2 ? "tasks" : "cat"),
			0);
		CHECK_EQUAL(profile_timeline_comm(lives.timeline, pid, 31, "sh"), 0);
		map(&lives, pid, 31, 0x1000, 0x1000, 0);
		map(&lives, pid, 32, 0x8000, 0x1000, pid == 2 ? 2 : 1);
	}
	REQUIRE_EQUAL(profile_timeline_finish(lives.timeline), 0);
	CHECK_STRING(program_at(&lives, 2, 40), "/bin/tasks");
	CHECK_STRING(program_at(&lives, 3, 40), "/bin/busybox");
	lives_free(&lives);
}

/* Guest events may come after samples of the new program. */
TEST(profile, prefers_a_late_program_to_a_library)
{
	struct lives lives;

	lives_make(&lives);
	lives.images[0] = (struct profile_image){ .path = "/bin/sh", .name = "sh" };
	lives.images[1] = (struct profile_image){ .path = "/lib/libc.so", .name = "libc.so" };
	lives.images[2] = (struct profile_image){ .path = "/bin/tasks", .name = "tasks" };
	CHECK_EQUAL(profile_timeline_exec(lives.timeline, 1, 10), 0);
	CHECK_EQUAL(profile_timeline_comm(lives.timeline, 1, 10, "sh"), 0);
	map(&lives, 1, 11, 0x1000, 0x1000, 0);
	CHECK_EQUAL(profile_timeline_exec(lives.timeline, 1, 30), 0);
	CHECK_EQUAL(profile_timeline_comm(lives.timeline, 1, 30, "tasks"), 0);
	map(&lives, 1, 35, 0x8000, 0x1000, 1);
	map(&lives, 1, 40, 0x1000, 0x1000, 2);
	map(&lives, 1, 40, 0x8000, 0x1000, 1);
	REQUIRE_EQUAL(profile_timeline_finish(lives.timeline), 0);
	CHECK_STRING(program_at(&lives, 1, 29), "/bin/sh");
	CHECK_STRING(program_at(&lives, 1, 36), "/bin/tasks");
	lives_free(&lives);
}

static void check_image(const char *path, bool kernel, enum profile_image_kind kind,
			const char *name)
{
	struct pool pool = { 0 };
	struct profile_image image = { 0 };

	REQUIRE(profile_image_describe(&image, &pool, path, kernel));
	CHECK_EQUAL(image.kind, kind);
	CHECK_STRING(image.name, name);
	pool_free(&pool);
}

TEST(profile, knows_images_by_their_recorded_names)
{
	check_image("[kernel.kallsyms]_text", true, IMAGE_KERNEL, "[kernel.kallsyms]");
	check_image("[guest.kernel.kallsyms.42]_stext", true, IMAGE_KERNEL,
		    "[guest.kernel.kallsyms.42]");
	check_image("[virtio_blk]", true, IMAGE_MODULE, "[virtio_blk]");
	check_image("/lib/modules/6.1.0/kernel/drivers/block/virtio-blk.ko.xz", true, IMAGE_MODULE,
		    "[virtio_blk]");
	check_image("/usr/bin/find", false, IMAGE_FILE, "find");
	check_image("[vdso]", false, IMAGE_FILE, "[vdso]");
	check_image("//anon", false, IMAGE_NAMELESS, "anon");
	check_image("/memfd:code (deleted)", false, IMAGE_NAMELESS, "memfd:code (deleted)");
	check_image("memfd:program (deleted)", false, IMAGE_FILE, "memfd:program (deleted)");
	check_image("[anon]", false, IMAGE_NAMELESS, "[anon]");
	check_image("jitted-42.so", false, IMAGE_FILE, "jitted-42.so");
	check_image("[heap]", false, IMAGE_NAMELESS, "[heap]");
	check_image("", false, IMAGE_NAMELESS, "[unknown]");
	check_image("[kernel", true, IMAGE_NAMELESS, "[kernel");
	check_image("[]", true, IMAGE_NAMELESS, "[]");
}

TEST(profile, remembers_frames_while_the_cache_grows)
{
	static const struct profile_frame frame;
	struct profile_frame_cache cache;

	REQUIRE_EQUAL(profile_frame_cache_open(&cache), 0);
	for (uint64_t i = 0; i < 100000; i++) {
		struct profile_frame_cache_entry *entry =
			profile_frame_cache_entry(&cache, i * 16, i % 3, 1, false);

		REQUIRE(entry && !entry->frame);
		entry->frame = &frame;
		entry->own = i;
	}
	for (uint64_t i = 0; i < 100000; i++)
		CHECK_EQUAL(profile_frame_cache_entry(&cache, i * 16, i % 3, 1, false)->own, i);
	CHECK(!profile_frame_cache_entry(&cache, 16, 1, 2, false)->frame);
	profile_frame_cache_close(&cache);
}

static struct profile *load(const struct small_recording *recording, int32_t vcpu, bool leaves_only)
{
	const struct profile_options options = {
		.input = recording->path,
		.kallsyms = recording->kallsyms,
		.vcpu = vcpu,
		.leaves_only = leaves_only,
	};
	struct profile *profile = NULL;

	if (profile_load(&profile, &options))
		FAIL_TEST("%s", error_message());
	return profile;
}

TEST(profile, merges_samples_of_one_stack)
{
	struct small_recording recording;
	struct profile *profile;
	const struct profile_stack *stack;

	small_recording_make(&recording);
	profile = load(&recording, -1, false);
	REQUIRE(profile);
	CHECK_EQUAL(profile_samples(profile), 10);
	CHECK_EQUAL(profile_event(profile, 0)->weight, 10 * SMALL_PERIOD);
	CHECK_EQUAL(profile_lost(profile), 3);
	/* Two stacks, one of them on both vCPUs. */
	REQUIRE_EQUAL(profile_stack_count(profile), 3);
	stack = profile_stack(profile, 0);
	REQUIRE_EQUAL(stack->depth, 3);
	CHECK_STRING(stack->frames[0]->symbol, "leaf");
	CHECK_STRING(stack->frames[1]->symbol, "middle");
	CHECK_STRING(stack->frames[2]->symbol, "middle");
	CHECK(stack->frames[1] == stack->frames[2]);
	CHECK(stack->frames[0]->kernel);
	CHECK_EQUAL(stack->samples, 6);
	profile_free(profile);
	small_recording_free(&recording);
}

TEST(profile, selects_one_vcpu)
{
	struct small_recording recording;
	struct profile *profile;

	small_recording_make(&recording);
	profile = load(&recording, 1, false);
	REQUIRE(profile);
	CHECK_EQUAL(profile_samples(profile), 1);
	profile_free(profile);
	profile = load(&recording, -1, true);
	REQUIRE(profile);
	CHECK_EQUAL(profile_samples(profile), 10);
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		CHECK_EQUAL(profile_stack(profile, i)->depth, 1);
	profile_free(profile);
	small_recording_free(&recording);
}

TEST(profile, refuses_invalid_symbol_files)
{
	struct small_recording recording;
	struct profile_options options = { .kallsyms = "Makefile", .vcpu = -1 };
	struct profile *profile;

	small_recording_make(&recording);
	options.input = recording.path;
	CHECK_EQUAL(profile_load(&profile, &options), -EINVAL);
	CHECK(strstr(error_message(), "Makefile"));
	options = (struct profile_options){ .input = recording.path,
					    .vmlinux = "Makefile",
					    .vcpu = -1 };
	CHECK_EQUAL(profile_load(&profile, &options), -EINVAL);
	CHECK(strstr(error_message(), "not an ELF file"));
	small_recording_free(&recording);
}
