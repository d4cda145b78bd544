/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callchains of a guest's kernel against its code: whether each frame's function is what the next
 * frame's return address has called, by the instructions that stand there.
 */
#ifndef KVMSCOPE_TESTS_RIG_KERNEL_CALLS_H
#define KVMSCOPE_TESTS_RIG_KERNEL_CALLS_H

#include "tests/rig/kernel_code.h"

/* How the step from a frame to its caller is told. */
enum kernel_step {
	KERNEL_STEP_CALL,        /* the caller's call leads to the frame's function, */
	KERNEL_STEP_JUMP,        /* or to one that jumps there */
	KERNEL_STEP_INDIRECT,    /* by a register or memory, or a fault, to any function */
	KERNEL_STEP_INTERRUPTED, /* the frame is entry code: what it interrupted did not call it */
	KERNEL_STEP_FIRST,       /* the caller is where a CPU or a task begins */
	KERNEL_STEP_ELSEWHERE,   /* the caller is in a module */
	KERNEL_STEP_WRONG,
	KERNEL_STEPS,
};

/*
 * From the frame at ADDRESS, which is no return address where INTERRUPTED, to the one at CALLER,
 * both of a chain in KERNEL.
 */
enum kernel_step kernel_step(const struct kernel_code *kernel, uint64_t address, bool interrupted,
			     uint64_t caller);

/*
 * Of all kernel chains in DIRECTORY/perf.data, of VERSION's kernel, with DIRECTORY/disk: half of
 * the callers at least are told by a direct call, and of all, one in 2000 at most is one that calls
 * something else, or nothing. Those by a register or memory may call anything; what entry code
 * interrupted has not called it; the code of modules is not looked at.
 */
void kernel_calls_check(const char *version, const char *directory);

#endif
