/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that tells by itself when it did not run: a CPL3 loop, eight frames deep, that reads the
 * TSC in each turn and writes down each gap. What interrupts it is as long as the gap that it lies
 * in.
 */
#ifndef KVMSCOPE_TESTS_BENCH_GAP_GUEST_H
#define KVMSCOPE_TESTS_BENCH_GAP_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/kvm/sampled_guest.h"

#define GAP_WINDOW_MAX 0x8000u

/* To be run at CPL 3, on one vCPU. */
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
 * Lets it run for a second of CPU time, and takes the gaps of that. AHEAD: how far the guest's TSC
 * is ahead of the host's, GAP_AHEAD_UNKNOWN at first; better known after each call.
 */
void gap_guest_measure(struct sampled_guest *guest, int64_t *ahead, struct gap_window *window);

/* The gap that TIME lies in. */
bool gap_window_find(const struct gap_window *window, uint64_t time, size_t *found);

#endif
