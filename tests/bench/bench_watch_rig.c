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
	return system("tests/rig/rig --timeout 200 -- build/bench/bench_watch rig 2> build/bench/watch_rig.log")
		       ? 1
		       : 0;
}
