/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call chains of Debian's kernels, whose ORC tables have three different formats, under a workload
 * of system calls: they reach the entry, and each frame is called by the next one. Also across the
 * stacks of exceptions.
 */
#include "tests/rig/debian_recording.h"
#include "tests/rig/exception_chains.h"
#include "tests/rig/kernel_calls.h"
#include "tests/rig/rig.h"
#include "tests/rig/system_call_chains.h"

static void unwinds(const char *version)
{
	const char *directory;

	RIG_REQUIRED();
	directory = debian_recording(version, "on");
	if (!directory)
		return;
	system_call_chains_check(version, directory);
	kernel_calls_check(version, directory);
}

TEST(unwind, system_call_chains_of_debian_5_10_reach_the_entry)
{
	unwinds("5.10");
}

TEST(unwind, system_call_chains_of_debian_6_1_reach_the_entry)
{
	unwinds("6.1");
}

TEST(unwind, system_call_chains_of_debian_6_12_reach_the_entry)
{
	unwinds("6.12");
}

TEST(unwind, system_call_chains_of_debian_7_2_reach_the_entry)
{
	unwinds("7.2");
}

/*
 * Chains of a guest with its own breakpoints and NMIs, which the kernel handles on separate stacks.
 */
static void unwinds_exceptions(const char *version)
{
	const char *directory, *code_directory;

	RIG_REQUIRED();
	directory = debian_recording(version, "off");
	code_directory = debian_recording(version, "on");
	if (directory && code_directory)
		exception_chains_check(version, directory, code_directory);
}

TEST(unwind, exception_chains_of_debian_5_10_reach_the_interrupted_code)
{
	unwinds_exceptions("5.10");
}

TEST(unwind, exception_chains_of_debian_6_1_reach_the_interrupted_code)
{
	unwinds_exceptions("6.1");
}

TEST(unwind, exception_chains_of_debian_6_12_reach_the_interrupted_code)
{
	unwinds_exceptions("6.12");
}

TEST(unwind, exception_chains_of_debian_7_2_reach_the_interrupted_code)
{
	unwinds_exceptions("7.2");
}
