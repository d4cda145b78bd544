/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares call chains of a guest's kernel with its code: each frame's function must be called by
 * the instruction before the next frame's return address.
 */
#ifndef KVMSCOPE_TESTS_RIG_KERNEL_CALLS_H
#define KVMSCOPE_TESTS_RIG_KERNEL_CALLS_H

#include "tests/rig/kernel_code.h"

/* How a frame is connected to its caller. */
enum kernel_step {
	KERNEL_STEP_CALL,        /* the caller calls the frame's function */
	KERNEL_STEP_JUMP,        /* the caller calls a function that jumps there */
	KERNEL_STEP_INDIRECT,    /* an indirect call, or a fault, which may lead to any function */
	KERNEL_STEP_INTERRUPTED, /* the frame is entry code; the next frame was interrupted */
	KERNEL_STEP_FIRST,       /* the caller is the start of a CPU or a task */
	KERNEL_STEP_ELSEWHERE,   /* the caller is in a module */
	KERNEL_STEP_WRONG,
	KERNEL_STEPS,
};

/*
 * Classifies the step from the frame at ADDRESS, which is not a return address if INTERRUPTED, to
 * its caller at CALLER, both in a chain of KERNEL.
 */
enum kernel_step kernel_step(struct kernel_code *kernel, uint64_t address, bool interrupted,
			     uint64_t caller);

/* Prints COUNT addresses with their symbols in a line that the caller ends. */
void kernel_print_frames(const struct symbols *symbols, const uint64_t *addresses, size_t count);

/*
 * Checks all kernel chains in DIRECTORY/perf.data, of VERSION's kernel, with DIRECTORY/disk: at
 * least half of the callers are confirmed by a direct call, and at most one in 2000 calls something
 * else or nothing. Indirect calls may call anything; interrupted code has not called the entry
 * code; code of modules is not checked.
 */
void kernel_calls_check(const char *version, const char *directory);

#endif
