// SPDX-License-Identifier: Apache-2.0
/*
 * Has a function with a frame pointer made its frame yet, or given it up again? Where it has not, the frame
 * pointer is its caller's, and the first caller that it leads to is the caller's caller. No table tells it of
 * such code: its bytes do.
 */
#include <string.h>

#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind_step.h"

#define PAGE 4096ull
/* What a JIT checks of a function before it makes its frame (V8: whether its code is still good). */
#define PREAMBLE 32u

#define PUSH_BP    0x55
#define ENDBR64    "\xf3\x0f\x1e\xfa"
#define REP_RETURN "\xf3\xc3"

/* Zeroes where it ends with the page. */
struct code {
	uint8_t before; /* ip */
	uint8_t at[PREAMBLE + 8];
};

static bool read_code(const struct unwind_state *state, struct code *code)
{
	const struct stack_reader *stack = &state->stack;
	size_t left = PAGE - state->ip % PAGE;

	*code = (struct code){ 0 };
	if (guest_read_virtual(stack->view, stack->paging, state->ip - 1, &code->before, 1))
		code->before = 0;
	return !guest_read_virtual(stack->view, stack->paging, state->ip, code->at,
				   left < sizeof(code->at) ? left : sizeof(code->at));
}

/* mov %rsp, %rbp, in either encoding. */
static bool is_move(const uint8_t *code)
{
	return !memcmp(code, "\x48\x89\xe5", 3) || !memcmp(code, "\x48\x8b\xec", 3);
}

static bool is_begin(const uint8_t *code)
{
	return code[0] == PUSH_BP && is_move(code + 1);
}

/* With or without the bytes of its arguments. */
static bool is_return(const uint8_t *code)
{
	return code[0] == 0xc3 || code[0] == 0xc2 || !memcmp(code, REP_RETURN, 2);
}

/* Is a function's beginning ahead, and nothing between that ends another one, or fills the room behind it? */
static bool is_before_begin(const struct code *code)
{
	for (unsigned int i = 0; i < PREAMBLE; i++) {
		if (is_begin(code->at + i))
			return true;
		if (code->at[i] == 0xc3 || code->at[i] == 0xcc || code->at[i] == 0x90)
			return false;
	}
	return false;
}

enum unwind_frame unwind_frame_of(const struct unwind_state *state)
{
	struct code code;

	/* Where it is not known what is mapped, nothing that frame pointers lead to is proven. */
	if (!read_code(state, &code))
		return state->map ? UNWIND_FRAME_UNKNOWN : UNWIND_FRAME_MADE;
	if (is_return(code.at) || is_begin(code.at) ||
	    (!memcmp(code.at, ENDBR64, 4) && is_begin(code.at + 4)))
		return UNWIND_FRAME_NONE;
	if (is_move(code.at) && code.before == PUSH_BP)
		return UNWIND_FRAME_PUSHED;
	return is_before_begin(&code) ? UNWIND_FRAME_UNKNOWN : UNWIND_FRAME_MADE;
}
