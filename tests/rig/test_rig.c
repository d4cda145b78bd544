/* SPDX-License-Identifier: Apache-2.0 */
/* The rig itself: the environment of a command in it, and the results. */
#include "tests/rig/rig.h"

#include <stdio.h>
#include <unistd.h>

#define LARGE_OUTPUT "seq 100000"
enum { LARGE_OUTPUT_SIZE = 588895, STATUS = 37 };

/* One start of the rig serves all tests that only check its environment; never freed. */
static const struct rig_result *first_run(void)
{
	static struct rig_result result;

	if (!result.output)
		rig_run(&result, 100,
			"pwd; echo to errors >&2; mkdir -p build/rig; echo kept > build/rig/kept; "
			"echo spoilt > tests/rig/spoilt && cat tests/rig/spoilt; "
			"test -c /dev/kvm && echo npt $(cat /sys/module/kvm_amd/parameters/npt) on $(uname -r); "
			"echo shim $KVMSCOPE_RIG_DEBUG_SHIM; " LARGE_OUTPUT "; exit %d",
			STATUS);
	return &result;
}

static void check_line(const char *start)
{
	if (!strstr(first_run()->output, start))
		FAIL_TEST("no '%s' in:\n%.400s", start, first_run()->output);
}

TEST(rig, returns_status_and_output)
{
	char here[4096];

	RIG_REQUIRED();
	CHECK_EQUAL(first_run()->status, STATUS);
	CHECK_STRING(first_run()->errors, "to errors\n");
	REQUIRE(getcwd(here, sizeof(here) - 1));
	strcat(here, "\n");
	CHECK(!strncmp(first_run()->output, here, strlen(here)));
}

TEST(rig, returns_large_output_completely)
{
	const char *last;
	size_t length;

	RIG_REQUIRED();
	length = strlen(first_run()->output);
	REQUIRE(length > LARGE_OUTPUT_SIZE);
	last = first_run()->output + length - LARGE_OUTPUT_SIZE;
	CHECK(!strncmp(last, "1\n2\n3\n", 6));
	CHECK_STRING(last + LARGE_OUTPUT_SIZE - strlen("99999\n100000\n"), "99999\n100000\n");
}

TEST(rig, keeps_only_files_written_below_build)
{
	RIG_REQUIRED();
	check_line("spoilt\n");
	CHECK(access("tests/rig/spoilt", F_OK));
	CHECK(!access("build/rig/kept", F_OK));
}

TEST(rig, has_a_standard_kvm)
{
	RIG_REQUIRED();
	check_line("\nnpt Y on 6.1.");
}

TEST(rig, has_the_debug_register_shim)
{
	RIG_DEBUG_REGISTERS_REQUIRED();
	check_line("\nshim active\n");
}

TEST(rig, ends_a_command_at_its_timeout)
{
	struct rig_result result;

	RIG_REQUIRED();
	rig_run(&result, 6, "sleep 1000");
	CHECK_EQUAL(result.status, 124);
	rig_result_free(&result);
}
