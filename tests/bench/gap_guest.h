/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that records when it did not run: a CPL3 loop, eight frames deep, that reads the TSC in
 * each iteration and records each gap. The cost of an interruption is the length of its gap.
 */
#ifndef KVMSCOPE_TESTS_BENCH_GAP_GUEST_H
#define KVMSCOPE_TESTS_BENCH_GAP_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/kvm/sampled_guest.h"

#define GAP_WINDOW_MAX 0x8000u

/* To be run at CPL 3 on one vCPU. */
#define GAP_GUEST_CODE_SIZE 104
extern const uint8_t gap_guest_code[GAP_GUEST_CODE_SIZE];

/* ns, CLOCK_MONOTONIC_RAW. */
struct gap {
	uint64_t end, length;
};

struct gap_window {
	uint64_t count;
	struct gap gaps[GAP_WINDOW_MAX];
};

#define GAP_AHEAD_UNKNOWN INT64_MIN

/*
 * Lets the guest run for a second of CPU time and returns the gaps of that second. AHEAD is the
 * offset of the guest's TSC from the host's, GAP_AHEAD_UNKNOWN at first; each call improves it.
 */
void gap_guest_measure(struct sampled_guest *guest, int64_t *ahead, struct gap_window *window);

/* The gap that contains TIME. */
bool gap_window_find(const struct gap_window *window, uint64_t time, size_t *found);

#endif
