/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/report/folded.h"

TEST(folded, writes_one_line_for_each_stack)
{
	struct small_recording recording;
	struct profile_options options = { .vcpu = -1 };
	struct profile *profile;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	small_recording_make(&recording);
	options.input = recording.path;
	options.kallsyms = recording.kallsyms;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	CHECK_EQUAL(folded_write(profile, FOLDED_PLAIN, to), 0);
	fclose(to);
	/* Semicolons separate frames, so names must not have them. */
	CHECK_STRING(text, "vcpu 0;middle;middle;leaf 6\n"
			   "vcpu 0;top:with/all;leaf 3\n"
			   "vcpu:1;top:with/all;leaf 1\n");
	free(text);
	profile_free(profile);
	small_recording_free(&recording);
}

TEST(folded, groups_by_cgroup)
{
	struct small_recording recording;
	struct profile_options options = { .vcpu = -1 };
	struct profile *profile;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	small_recording_make(&recording);
	options.input = recording.path;
	options.kallsyms = recording.kallsyms;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	CHECK_EQUAL(folded_write(profile, FOLDED_BY_CGROUP, to), 0);
	CHECK_EQUAL(folded_write(profile, FOLDED_BY_CONTAINER, to), 0);
	fclose(to);
	CHECK_STRING(text, "/system.slice/a:b.service;vcpu 0;middle;middle;leaf 6\n"
			   "/system.slice/a:b.service;vcpu 0;top:with/all;leaf 3\n"
			   "[unknown cgroup];vcpu:1;top:with/all;leaf 1\n"
			   "[no container];vcpu 0;middle;middle;leaf 6\n"
			   "[no container];vcpu 0;top:with/all;leaf 3\n"
			   "[unknown cgroup];vcpu:1;top:with/all;leaf 1\n");
	free(text);
	profile_free(profile);
	small_recording_free(&recording);
}

TEST(folded, names_unsymbolized_frames_by_their_image)
{
	struct profile_frame frame = { .image = "libc.so.6", .address = 0x1234 };
	struct profile_stack stack = { .comm = "", .pid = 12 };
	char text[64];

	CHECK_STRING(folded_frame_name(&frame, text, sizeof(text)), "[libc.so.6]");
	frame.image = "[unknown]";
	CHECK_STRING(folded_frame_name(&frame, text, sizeof(text)), "[unknown]");
	frame.symbol = "malloc";
	CHECK_STRING(folded_frame_name(&frame, text, sizeof(text)), "malloc");
	CHECK_STRING(folded_comm(&stack, text, sizeof(text)), "pid 12");
	stack.pid = 0;
	CHECK_STRING(folded_comm(&stack, text, sizeof(text)), "guest");
	stack.comm = "sh";
	CHECK_STRING(folded_comm(&stack, text, sizeof(text)), "sh");
}
