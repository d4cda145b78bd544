/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind_step.h"

#define USER_FRAME_MAX   (1ull << 20)  /* bytes that one frame may have */
#define KERNEL_FRAME_MAX (32ull << 10) /* no kernel stack is larger */

/* Frames lie one above the other, within reach; else bp is no frame pointer but any number. */
static bool is_frame(const struct unwind_state *state, uint64_t bp, uint64_t largest)
{
	return bp >= state->sp && bp - state->sp <= largest;
}

/* Reads the frame at bp: the caller's bp, then the return address. */
static bool read_frame(struct unwind_state *state, unsigned int width, uint64_t *bp, uint64_t *ip)
{
	return stack_read(&state->stack, state->bp, width, bp) &&
	       stack_read(&state->stack, state->bp + width, width, ip);
}

/* arch/x86/include/asm/frame.h, ENCODE_FRAME_POINTER: the low bit marks a pointer to struct pt_regs. */
enum unwind_result unwind_step_frame_pointer(struct unwind_state *state)
{
	uint64_t bp, ip;

	if (!state->bp)
		return UNWIND_END;
	if (!is_frame(state, state->bp & ~1ull, KERNEL_FRAME_MAX))
		return UNWIND_LOST;
	if (state->bp & 1)
		return unwind_from_registers(state, state->bp & ~1ull);
	if (!read_frame(state, 8, &bp, &ip))
		return UNWIND_LOST;
	state->sp = state->bp + 16;
	state->bp = bp;
	state->ip = ip;
	state->signal = false;
	return UNWIND_CALLER;
}

/* The outermost frame has bp 0 (System V ABI, AMD64 supplement, 3.4.1). */
enum unwind_result unwind_step_user_frame_pointer(struct unwind_state *state, unsigned int width)
{
	uint64_t bp, ip;

	if (!state->bp)
		return UNWIND_END;
	if (!is_frame(state, state->bp, USER_FRAME_MAX) || !read_frame(state, width, &bp, &ip) || !ip ||
	    ip >= USER_TEXT_END)
		return UNWIND_LOST;
	state->sp = state->bp + 2ull * width;
	state->bp = bp;
	state->ip = ip;
	state->signal = false;
	state->has_registers = false;
	return UNWIND_CALLER;
}
