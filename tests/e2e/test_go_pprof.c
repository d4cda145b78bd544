/* SPDX-License-Identifier: Apache-2.0 */
/* go tool pprof reads our export. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/recorded_guest.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

/* fake_guest_make() repeats the tag of recorded_guest_begin(). */
#define KERNEL_BUILD_ID "1717171717171717171717171717171717171717"

static char *pprof(const struct named_guest *named, const char *options)
{
	int status;
	char *text;

	recorded_guest_export(named, "guest.pb.gz", "");
	text = command_output(&status, "cd %s && go tool pprof %s guest.pb.gz 2>&1", named->home,
			      options);
	CHECK_EQUAL(status, 0);
	return text;
}

static void check_has(const char *text, const char *what)
{
	if (!strstr(text, what))
		FAIL_TEST("pprof does not show \"%s\":\n%.3000s", what, text);
}

static bool has_go(void)
{
	return command_succeeds("go tool pprof -h 2>&1 | grep -q -- -raw");
}

TEST(pprof, go_tool_shows_everything)
{
	struct named_guest named;
	char *text;

	if (!has_go())
		SKIP("go tool pprof (package golang-go) is not installed");
	recorded_guest_begin(&named, "vcpu 0", PERSPECTIVE_GUEST);
	text = pprof(&named, "-raw");
	check_has(text, "samples/count cpu/nanoseconds\n");
	check_has(text, "comm:[vcpu 0]");
	check_has(text, "vcpu:[0]");
	check_has(text, "vcpu:[1]");
	check_has(text, "M=1 guest_function_0 ");
	check_has(text, "\n1: 0x0/0x0/0x0 [kernel.kallsyms] " KERNEL_BUILD_ID " [FN]\n");
	check_has(text, "0x0/0x0/0x0 [fake_module] ");
	free(text);
	text = pprof(&named, "-top");
	check_has(text, "File: [kernel.kallsyms]\nBuild ID: " KERNEL_BUILD_ID "\n");
	check_has(text, "Duration: 749.75ms, "); /* 3000 samples, 250 us apart */
	check_has(text, "  guest_function_0\n");
	free(text);
	named_guest_end(&named);
}

TEST(pprof, go_tool_keeps_unsymbolized_images_apart)
{
	struct named_guest named;
	char *text;
	int status;

	if (!has_go())
		SKIP("go tool pprof (package golang-go) is not installed");
	recorded_guest_begin(&named, "vcpu 0", PERSPECTIVE_GUEST);
	free(command_output(&status, "rm -r %s/.debug", named.home));
	text = pprof(&named, "-top");
	check_has(text, "  [[kernel.kallsyms]]\n");
	check_has(text, "  [[fake_module]]\n");
	check_has(text, "  [[unknown]]\n");
	free(text);
	text = pprof(&named, "-top -addresses");
	check_has(text, "  0000000000400000 [[unknown]]\n");
	free(text);
	named_guest_end(&named);
}
