/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/unwind_step.h"

#define USER_FRAME_MAX   (1ull << 20)  /* bytes of one frame */
#define KERNEL_FRAME_MAX (32ull << 10) /* no kernel stack is larger */

/* Frames follow each other upwards, within a limit; otherwise bp is not a frame pointer. */
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

/*
 * The entry of a system call clears bp without a mark (arch/x86/entry/calling.h,
 * PUSH_AND_CLEAR_REGS). Kernel threads, and stacks other than a task's, have no user registers
 * there.
 */
static enum unwind_result end_at_entry(struct unwind_state *state)
{
	if (unwind_is_at_entry(state) && unwind_from_registers(state, state->sp) == UNWIND_USER)
		return UNWIND_USER;
	return UNWIND_END;
}

/* Continues with the frame at bp, on whatever stack that is. */
static enum unwind_result use_frame(struct unwind_state *state)
{
	uint64_t bp, ip;

	if (!read_frame(state, state->word, &bp, &ip))
		return UNWIND_LOST;
	state->sp = state->bp + 2ull * state->word;
	state->bp = bp;
	state->ip = ip;
	state->signal = false;
	return UNWIND_CALLER;
}

/*
 * The same in a 32-bit kernel, with the marks of its own: a pointer to struct pt_regs has its
 * highest bit cleared, and the entry of a system call leaves the user's value in bp. Interrupts
 * have a stack of their own, whose frames continue on the task's
 * (arch/x86/kernel/irq_32.c, call_on_stack()).
 */
static enum unwind_result step_by_frame_32(struct unwind_state *state)
{
	enum unwind_result result;

	if (!state->signal && unwind_is_at_entry(state))
		return end_at_entry(state);
	if (!state->bp)
		return UNWIND_END;
	if (!(state->bp >> 31))
		return unwind_from_registers(state, state->bp | 1ull << 31);
	if (is_frame(state, state->bp, KERNEL_FRAME_MAX))
		return use_frame(state);
	if (state->bp < KERNEL_START_32)
		return UNWIND_LOST;
	result = use_frame(state);
	return result == UNWIND_CALLER && !unwind_is_after_call(state, state->ip) ? UNWIND_LOST
										  : result;
}

/* arch/x86/include/asm/frame.h, ENCODE_FRAME_POINTER: the low bit marks a pointer to struct
 * pt_regs. */
static enum unwind_result step_by_frame(struct unwind_state *state)
{
	if (state->word == 4)
		return step_by_frame_32(state);
	if (!state->bp)
		return end_at_entry(state);
	if (!is_frame(state, state->bp & ~1ull, KERNEL_FRAME_MAX))
		return UNWIND_LOST;
	if (state->bp & 1)
		return unwind_from_registers(state, state->bp & ~1ull);
	return use_frame(state);
}

/* bp is the caller's, and the return address is at SP. */
static enum unwind_result step_without_frame(struct unwind_state *state, uint64_t sp)
{
	if (!stack_read(&state->stack, sp, state->word, &state->ip))
		return UNWIND_LOST;
	state->sp = sp + state->word;
	state->signal = false;
	return UNWIND_CALLER;
}

static enum unwind_result step(struct unwind_state *state)
{
	switch (state->signal ? unwind_frame_of(state) : UNWIND_FRAME_MADE) {
	case UNWIND_FRAME_MADE:
		return step_by_frame(state);
	case UNWIND_FRAME_PUSHED:
		return step_without_frame(state, state->sp + state->word);
	case UNWIND_FRAME_NONE:
		return step_without_frame(state, state->sp);
	default:
		return UNWIND_LOST;
	}
}

/*
 * An unknown kernel may have no frame pointers: bp can have any value. This check is not made for a
 * known one, as its outermost frames may not follow a readable call: the first functions of a CPU
 * were jumped to, or the code of their callers was freed.
 */
enum unwind_result unwind_step_frame_pointer(struct unwind_state *state)
{
	enum unwind_result result = step(state);

	if (state->unknown_kernel && result == UNWIND_CALLER && !state->signal &&
	    !unwind_is_after_call(state, state->ip))
		return UNWIND_LOST;
	return result;
}

/* The outermost frame has bp 0 (System V ABI, AMD64 supplement, 3.4.1). */
enum unwind_result unwind_step_user_frame_pointer(struct unwind_state *state, unsigned int width)
{
	uint64_t bp, ip;

	if (!state->bp)
		return UNWIND_END;
	if (!is_frame(state, state->bp, USER_FRAME_MAX) || !read_frame(state, width, &bp, &ip) ||
	    !ip || ip >= USER_TEXT_END)
		return UNWIND_LOST;
	state->sp = state->bp + 2ull * width;
	state->bp = bp;
	state->ip = ip;
	state->signal = false;
	state->has_registers = false;
	return UNWIND_CALLER;
}
