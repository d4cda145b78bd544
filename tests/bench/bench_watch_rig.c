/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_watch on a standard KVM in the rig, where data watchpoints and the guest's own debug
 * registers are supported. Exits are expensive in an emulator: compare ratios.
 */
#include "tests/bench/bench.h"

int main(void)
{
	if (system("tests/rig/rig --check debug-registers > /dev/null 2>&1")) {
		bench_skip("watch: costs of watches, rig", "no rig with debug registers here");
		return 0;
	}
	return bench_in_rig("bench_watch rig", "watch_rig");
}
