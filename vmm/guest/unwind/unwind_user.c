/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses how a user-space frame is unwound. Code with a table: by the table only. Other code
 * (generated at run time, in an image without a table, or in a program whose mappings are unknown):
 * by the frame pointer, if the caller is code after a call that does not lead elsewhere.
 * Unknown images, and those whose table was not compiled yet: not at all, as they may have no frame
 * pointers.
 */
#include <string.h>

#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/call_site.h"
#include "vmm/guest/unwind/unwind_step.h"

/* A return address may be in the next function: look up the call before it. */
static uint64_t code_address(const struct unwind_state *state)
{
	return state->signal ? state->ip : state->ip - 1;
}

/* Finds the mapping of the code at ip, which is mostly that of the previous frame. */
static void find_mapping(struct unwind_state *state)
{
	uint64_t address = code_address(state);

	if (state->mapping && address >= state->mapping->start && address < state->mapping->end)
		return;
	state->mapping = state->map ? user_map_find(state->map, address) : NULL;
}

static const struct cfi_rule *find_rule(const struct unwind_state *state)
{
	static const struct cfi_rule none = { .cfa = CFI_CFA_NONE },
				     unknown = { .cfa = CFI_CFA_UNKNOWN };
	const struct user_mapping *mapping = state->mapping;
	const struct cfi_table *table;
	bool pending;

	if (!state->map || !state->user_is_long)
		return &none;
	if (!mapping || !mapping->image)
		return &unknown;
	/* In this order: the table may be set meanwhile. */
	pending = user_image_cfi_pending(mapping->image);
	table = user_image_cfi(mapping->image);
	if (!table)
		return pending && !state->guess_early ? &unknown : &none;
	return cfi_table_find(table, code_address(state) - mapping->start + mapping->offset);
}

/* Is ip executable code? If its mapping is unknown, the bytes before it decide. */
static bool is_code(const struct unwind_state *state)
{
	if (state->mapping)
		return state->mapping->flags & USER_MAPPING_EXEC;
	return !state->signal && unwind_is_after_call(state, state->ip);
}

/*
 * The code that a signal handler returns to: mov $__NR_rt_sigreturn, %rax; syscall. glibc has an
 * FDE for it, other libraries do not.
 */
static bool is_signal_return(const struct unwind_state *state)
{
	static const uint8_t by_rax[] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 };
	static const uint8_t by_eax[] = { 0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05 };
	uint8_t code[sizeof(by_rax)];

	return !guest_read_virtual(state->stack.view, state->stack.paging, state->ip, code,
				   sizeof(code)) &&
	       (!memcmp(code, by_rax, sizeof(by_rax)) || !memcmp(code, by_eax, sizeof(by_eax)));
}

/* struct rt_sigframe, without the return address: arch/x86/include/asm/sigframe.h,
 * uapi/asm/sigcontext.h. */
static const struct cfi_rule signal_frame = {
	.cfa = CFI_CFA_MEMORY,
	.cfa_register = DWARF_RSP,
	.cfa_offset = 160, /* uc.uc_mcontext.sp */
	.bp = CFI_AT_RSP,
	.bp_offset = 120,
	.bx = CFI_AT_RSP,
	.bx_offset = 128,
	.ip = CFI_AT_RSP,
	.ip_offset = 168,
	.signal = 1,
};

static enum user_call find_call(const struct unwind_state *state, uint64_t address, uint64_t ip)
{
	return user_call_classify(state->stack.view, state->stack.paging, address, ip);
}

static unsigned int word_size(const struct unwind_state *state)
{
	return state->user_is_long ? 8 : 4;
}

/*
 * Code without an FDE in an image with a table, or without a file, is assembly or generated: a
 * called function may have jumped to it. 32-bit code has other kinds of PLTs.
 */
static bool may_be_jumped_to(const struct unwind_state *state)
{
	const struct user_mapping *mapping = state->mapping;

	return !state->user_is_long ||
	       (mapping && (user_image_kind(mapping->image) != USER_IMAGE_FILE ||
			    user_image_cfi(mapping->image)));
}

/* bp is the caller's, and the return address is at sp. */
static enum unwind_result step_without_frame(struct unwind_state *state)
{
	unsigned int width = word_size(state);
	uint64_t ip;

	if (!stack_read(&state->stack, state->sp, width, &ip) || !ip || ip >= USER_TEXT_END)
		return UNWIND_LOST;
	state->sp += width;
	state->ip = ip;
	state->signal = state->has_registers = false;
	return UNWIND_CALLER;
}

/*
 * Was ip interrupted in a leaf function that has only its return address on the stack? Then sp is
 * not a multiple of 16 (psABI for x86-64, 3.2.2), as it would be with a frame, and the return
 * address follows a call of this function.
 */
static bool is_without_frame(struct unwind_state *state)
{
	uint64_t address;

	return state->sp % 16 == 8 && !may_be_jumped_to(state) &&
	       stack_read(&state->stack, state->sp, 8, &address) &&
	       find_call(state, address, state->ip) == USER_CALL_HERE;
}

/* Code that called another function has a frame. */
static enum unwind_result step_by_frame(struct unwind_state *state)
{
	switch (state->signal ? unwind_frame_of(state) : UNWIND_FRAME_MADE) {
	case UNWIND_FRAME_MADE:
		return state->signal && is_without_frame(state)
			       ? step_without_frame(state)
			       : unwind_step_user_frame_pointer(state, word_size(state));
	case UNWIND_FRAME_PUSHED:
		state->sp += word_size(state);
		return step_without_frame(state);
	case UNWIND_FRAME_NONE:
		return step_without_frame(state);
	default:
		return UNWIND_LOST;
	}
}

/* Is the guessed ip an address that the code at CALLED returns to? */
static bool is_caller(const struct unwind_state *state, uint64_t called)
{
	switch (find_call(state, state->ip, called)) {
	case USER_CALL_NONE:
		return false;
	case USER_CALL_ELSEWHERE:
		return may_be_jumped_to(state);
	default:
		return true;
	}
}

static enum unwind_result guess(struct unwind_state *state)
{
	uint64_t called = state->ip;
	enum unwind_result result;

	if (state->bp_lost)
		return UNWIND_LOST;
	result = step_by_frame(state);
	state->bx_lost = true;
	if (result == UNWIND_CALLER && !state->checked_later && !is_caller(state, called))
		return UNWIND_LOST;
	return result;
}

void unwind_enter_user(struct unwind_state *state)
{
	state->mapping = NULL;
	state->bp_lost = false;
	state->bx = state->registers[DWARF_RBX];
	state->bx_lost = !state->has_registers;
	find_mapping(state);
}

enum unwind_result unwind_step_user(struct unwind_state *state)
{
	const struct cfi_rule *rule = find_rule(state);
	enum unwind_result result;

	if (rule->cfa == CFI_CFA_NONE && state->map && is_signal_return(state))
		rule = &signal_frame;
	result = rule->cfa == CFI_CFA_NONE ? guess(state) : unwind_step_cfi(state, rule);
	/* A rule may read anything from the stack, but a caller is never in the kernel. */
	if (result == UNWIND_CALLER && state->ip >= USER_TEXT_END)
		return UNWIND_LOST;
	if (result != UNWIND_CALLER || !state->map)
		return result;
	find_mapping(state);
	return is_code(state) ? UNWIND_CALLER : UNWIND_LOST;
}
