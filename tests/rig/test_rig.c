/* SPDX-License-Identifier: Apache-2.0 */
/* The rig itself: what a command in it sees, and what comes back. */
#include "tests/rig/rig.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(rig, status_and_output_come_back)
{
	struct rig_result result;
	char here[4096];

	RIG_REQUIRED();
	rig_run(&result, 60, "pwd; echo to errors >&2; mkdir -p build/rig; echo kept > build/rig/kept; exit 37");
	CHECK_EQUAL(result.status, 37);
	REQUIRE(getcwd(here, sizeof(here) - 1));
	CHECK_STRING(result.output, strcat(here, "\n"));
	CHECK_STRING(result.errors, "to errors\n");
	rig_result_free(&result);
	CHECK(!access("build/rig/kept", F_OK));
	CHECK(!unlink("build/rig/kept"));
}

TEST(rig, large_output_is_whole)
{
	struct rig_result result;

	RIG_REQUIRED();
	rig_run(&result, 60, "seq 100000");
	CHECK_EQUAL(result.status, 0);
	CHECK_EQUAL(strlen(result.output), 588895);
	CHECK_STRING(result.output + strlen(result.output) - 7, "100000\n");
	rig_result_free(&result);
}

TEST(rig, has_a_standard_kvm)
{
	struct rig_result result;

	RIG_REQUIRED();
	rig_run(&result, 60, "test -c /dev/kvm && cat /sys/module/kvm_amd/parameters/npt && uname -r");
	CHECK_EQUAL(result.status, 0);
	CHECK(!strncmp(result.output, "1\n6.1.", 6) || !strncmp(result.output, "Y\n6.1.", 6));
	rig_result_free(&result);
}

TEST(rig, loses_writes_outside_build)
{
	struct rig_result result;

	RIG_REQUIRED();
	rig_run(&result, 60, "echo spoilt > tests/rig/spoilt && cat tests/rig/spoilt");
	CHECK_STRING(result.output, "spoilt\n");
	rig_result_free(&result);
	CHECK(access("tests/rig/spoilt", F_OK));
}

TEST(rig, ends_a_command_at_its_timeout)
{
	struct rig_result result;

	RIG_REQUIRED();
	rig_run(&result, 6, "sleep 1000");
	CHECK_EQUAL(result.status, 124);
	rig_result_free(&result);
}

TEST(rig, debug_register_shim_is_active)
{
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED();
	rig_run(&result, 60, "echo $KVMSCOPE_RIG_DEBUG_SHIM");
	CHECK(!strncmp(result.output, "active", 6));
	rig_result_free(&result);
}
