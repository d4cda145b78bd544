/* SPDX-License-Identifier: Apache-2.0 */
/* The symbols of Debian's kernels equal their own /proc/kallsyms. */
#include "tests/rig/debian_recording.h"
#include "tests/rig/kallsyms_truth.h"
#include "tests/rig/rig.h"

static void named(const char *version)
{
	const char *directory;

	RIG_REQUIRED();
	directory = debian_recording(version, "on");
	if (directory)
		kallsyms_truth_check(directory);
}

TEST(kallsyms, symbols_of_debian_5_10_equal_the_guest_kallsyms)
{
	named("5.10");
}

TEST(kallsyms, symbols_of_debian_6_1_equal_the_guest_kallsyms)
{
	named("6.1");
}

TEST(kallsyms, symbols_of_debian_6_12_equal_the_guest_kallsyms)
{
	named("6.12");
}

TEST(kallsyms, symbols_of_debian_7_2_equal_the_guest_kallsyms)
{
	named("7.2");
}
