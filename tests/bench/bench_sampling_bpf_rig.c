// SPDX-License-Identifier: Apache-2.0
/*
 * bench_sampling on a standard KVM, in the rig: what kicks and BPF cost a guest there. Exits are
 * dear in an emulator, and so are interrupts: compare ratios.
 */
#include "tests/bench/bench.h"

int main(void)
{
	if (system("tests/rig/rig --check > /dev/null 2>&1")) {
		bench_skip("sampling by bpf: guest slow-down, rig", "no rig here");
		return 0;
	}
	return !!system(BENCH_IN_RIG("bench_sampling rig", "sampling_bpf_rig"));
}
