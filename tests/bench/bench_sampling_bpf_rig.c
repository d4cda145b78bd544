/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_sampling on a standard KVM in the rig: the cost of kicks and of BPF for a guest. Exits and
 * interrupts are expensive in an emulator: compare ratios.
 */
#include "tests/bench/bench.h"

int main(void)
{
	if (system("tests/rig/rig --check > /dev/null 2>&1")) {
		bench_skip("bpf sampler: guest slow-down, rig", "no rig here");
		return 0;
	}
	return bench_in_rig("bench_sampling rig", "sampling_bpf_rig");
}
