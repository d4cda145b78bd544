/* SPDX-License-Identifier: Apache-2.0 */
/* Call chain of a stopped vCPU: the unwinder fills it in, module_presence_check() may shorten it.
 */
#ifndef KVMSCOPE_GUEST_CALLCHAIN_H
#define KVMSCOPE_GUEST_CALLCHAIN_H

#include <stdbool.h>
#include <stdint.h>

struct guest_callchain {
	uint64_t *addresses; /* the caller's, with room for CAPACITY */
	uint16_t capacity;
	uint16_t kernel_depth;
	uint16_t user_depth;
	uint8_t flags;           /* enum sample_flags: which parts are truncated */
	uint64_t user_stack_end; /* GVA after the highest word of the user stack that was needed */
	uint64_t deadline;       /* ns of CLOCK_MONOTONIC_RAW at which the walk stops; 0: none */
	/*
	 * Each read of guest memory is a system call: the clock is read for every frame, and the
	 * reader of the chain checks that callers found by frame pointers follow a call
	 * (call_site.h).
	 */
	bool slow_memory;
	bool guess_early;    /* uses frame pointers while an image's table was not tried yet */
	bool unknown_kernel; /* kernel callers found by frame pointers must follow a call */
};

#endif
