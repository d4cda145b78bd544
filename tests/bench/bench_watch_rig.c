// SPDX-License-Identifier: Apache-2.0
/*
 * bench_watch on a standard KVM, in the rig: there data hits and the guest's
 * own debug registers are told of. Exits are dear in an emulator: compare ratios.
 */
#include "tests/bench/bench.h"

int main(void)
{
	if (system("tests/rig/rig --check debug-registers > /dev/null 2>&1")) {
		bench_skip("watch: hits and what else they cost, rig",
			   "no debug registers in a rig here");
		return 0;
	}
	return !!system(BENCH_IN_RIG("bench_watch rig", "watch_rig"));
}
