/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's call chain, as the unwinder writes it and the checks of modules shorten it. */
#ifndef KVMSCOPE_GUEST_GUEST_CALLCHAIN_H
#define KVMSCOPE_GUEST_GUEST_CALLCHAIN_H

#include <stdbool.h>
#include <stdint.h>

struct guest_callchain {
	uint64_t *addresses; /* the caller's, CAPACITY long */
	uint16_t capacity;
	uint16_t kernel_depth;
	uint16_t user_depth;
	uint8_t flags;     /* enum sample_flags: what was truncated */
	uint64_t deadline; /* CLOCK_MONOTONIC_RAW in ns at which the walk ends wherever it is; 0:
			      none */
	/*
	 * Reading it takes system calls: the time is looked at for each frame, and that callers by
	 * frame pointers in user space are behind calls is left to whoever has the chain
	 * (user_call.h).
	 */
	bool slow_memory;
	bool unknown_kernel; /* callers in the kernel by frame pointers have to be behind calls */
};

#endif
