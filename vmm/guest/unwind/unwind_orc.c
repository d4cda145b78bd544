/* SPDX-License-Identifier: Apache-2.0 */
/* The rules are those of arch/x86/kernel/unwind_orc.c, unwind_next_frame(). */
#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/unwind_step.h"

#define THUNK_SIZE 64ull /* bytes, at the most */
#define RET        0xc3
/* Bytes; what it has more is a struct inactive_task_frame. */
#define FORK_FRAME_SIZE (PT_REGS_SIZE + 56)

/*
 * What the kernel assumes of code that no table describes: a frame pointer.
 * Programs of BPF have one; a module that was just loaded has not.
 */
static const struct orc_entry generated_code = {
	.sp_offset = 16,
	.bp_offset = -16,
	.sp_register = ORC_BP,
	.bp_register = ORC_PREVIOUS_SP,
	.type = ORC_TYPE_CALL,
};

/* Nothing but the return address was pushed, as by a call through a NULL pointer. */
static const struct orc_entry just_called = { .sp_offset = 8,
					      .sp_register = ORC_SP,
					      .type = ORC_TYPE_CALL };
/* The frame pointer, too, but it is the caller's yet. */
static const struct orc_entry just_pushed = { .sp_offset = 16,
					      .sp_register = ORC_SP,
					      .type = ORC_TYPE_CALL };

/* What is behind a call has a frame. */
static bool guess_entry(const struct unwind_state *state, struct orc_entry *entry)
{
	switch (state->signal ? unwind_frame_of(state) : UNWIND_FRAME_MADE) {
	case UNWIND_FRAME_MADE:
		*entry = generated_code;
		return true;
	case UNWIND_FRAME_PUSHED:
		*entry = just_pushed;
		return true;
	case UNWIND_FRAME_NONE:
		*entry = just_called;
		return true;
	default:
		return false;
	}
}

/* A return address may stand behind its function: look for the call before it. */
static bool find_entry(const struct unwind_state *state, const struct kernel_orc *unwinder,
		       struct orc_entry *entry, bool *guessed)
{
	uint64_t ip = state->signal ? state->ip : state->ip - 1;
	const struct orc_table *table = kernel_orc_table(unwinder, ip);

	*guessed = !table;
	if (table)
		return orc_find(table, unwinder->format, ip, entry);
	if (ip && ip < KERNEL_TEXT_START)
		return false;
	if (ip)
		return guess_entry(state, entry);
	*entry = just_called;
	return true;
}

static bool add_indirect(struct unwind_state *state, uint64_t at, int16_t offset, uint64_t *sum)
{
	uint64_t base;

	if (!stack_read(&state->stack, at, 8, &base))
		return false;
	*sum = base + (uint64_t)(int64_t)offset;
	return true;
}

static bool known_register(const struct unwind_state *state, enum dwarf_register number,
			   uint64_t *known)
{
	*known = state->registers[number];
	return state->has_registers;
}

/* The caller's stack pointer, or where the registers lie. */
static bool previous_sp(struct unwind_state *state, const struct orc_entry *entry, uint64_t *sp)
{
	uint64_t offset = (uint64_t)(int64_t)entry->sp_offset;

	switch (entry->sp_register) {
	case ORC_SP:
		*sp = state->sp + offset;
		return true;
	case ORC_BP:
		*sp = state->bp + offset;
		return true;
	case ORC_SP_INDIRECT:
		return add_indirect(state, state->sp, entry->sp_offset, sp);
	case ORC_BP_INDIRECT:
		return add_indirect(state, state->bp + offset, 0, sp);
	case ORC_R10:
		return known_register(state, DWARF_R10, sp);
	case ORC_R13:
		return known_register(state, DWARF_R13, sp);
	case ORC_DI:
		return known_register(state, DWARF_RDI, sp);
	case ORC_DX:
		return known_register(state, DWARF_RDX, sp);
	default:
		return false;
	}
}

static enum unwind_result to_caller(struct unwind_state *state, const struct orc_entry *entry,
				    uint64_t sp)
{
	enum unwind_result result;
	bool had_registers = state->has_registers;

	switch (entry->type) {
	case ORC_TYPE_CALL:
		if (!stack_read(&state->stack, sp - 8, 8, &state->ip))
			return UNWIND_LOST;
		state->sp = sp;
		state->signal = entry->signal;
		state->has_registers = false;
		return UNWIND_CALLER;
	case ORC_TYPE_REGS:
		return unwind_from_registers(state, sp);
	case ORC_TYPE_REGS_PARTIAL:
		result = unwind_from_interrupt_frame(state, sp);
		state->has_registers = had_registers;
		return result;
	default:
		return UNWIND_LOST;
	}
}

static bool previous_bp(struct unwind_state *state, const struct orc_entry *entry, uint64_t sp)
{
	uint64_t offset = (uint64_t)(int64_t)entry->bp_offset;

	switch (entry->bp_register) {
	case ORC_UNDEFINED:
		if (state->has_registers)
			state->bp = state->registers[DWARF_RBP];
		return true;
	case ORC_PREVIOUS_SP:
		return stack_read(&state->stack, sp + offset, 8, &state->bp);
	case ORC_BP:
		return stack_read(&state->stack, state->bp + offset, 8, &state->bp);
	default:
		return false;
	}
}

/* Is the caller that was found by a guess known code, behind a call? */
static bool is_plausible_caller(const struct unwind_state *state, const struct kernel_orc *unwinder)
{
	return kernel_orc_table(unwinder, state->ip - 1) && unwind_is_after_call(state, state->ip);
}

/*
 * A retpoline thunk calls itself and replaces the return address by the
 * function that it is to jump to. So the tables do not describe its start,
 * and at its RET they take that function for the caller. What was pushed by
 * the call of the thunk lies on top of the stack or just below.
 */
static bool leave_thunk(struct unwind_state *state, const struct kernel_orc *unwinder)
{
	for (uint64_t sp = state->sp; sp <= state->sp + 8; sp += 8) {
		uint64_t ip;

		if (!stack_read(&state->stack, sp, 8, &ip))
			return false;
		if (ip - state->ip + THUNK_SIZE < 2 * THUNK_SIZE ||
		    !kernel_orc_table(unwinder, ip) || !unwind_is_after_call(state, ip))
			continue;
		state->ip = ip;
		state->sp = sp + 8;
		state->signal = false;
		state->has_registers = false;
		return true;
	}
	return false;
}

/* At a RET whose return address stands behind no call. */
static bool is_at_thunks_return(struct unwind_state *state, const struct orc_entry *entry)
{
	uint8_t opcode;
	uint64_t ip;

	return entry->type == ORC_TYPE_CALL && entry->sp_register == ORC_SP &&
	       entry->sp_offset == 8 &&
	       !guest_read_virtual(state->stack.view, state->stack.paging, state->ip, &opcode, 1) &&
	       opcode == RET && stack_read(&state->stack, state->sp, 8, &ip) &&
	       !unwind_is_after_call(state, ip);
}

/* Thunks call nothing: only where one was interrupted is it on a stack. */
static bool may_be_thunk(struct unwind_state *state, const struct orc_entry *entry)
{
	return state->signal &&
	       (entry->type == ORC_TYPE_NONE || entry->type == ORC_TYPE_END ||
		entry->type == ORC_TYPE_NONE_OR_END || is_at_thunks_return(state, entry));
}

/*
 * Is nothing left of the task's stack but what is put there before its first call? A kernel thread
 * and the first CPU's idle task begin below a struct pt_regs, those of other CPUs below a struct
 * fork_frame (arch/x86, copy_thread_tls(), initial_stack). THREAD_SIZE is 16 KiB or a multiple, and
 * stacks are aligned to it.
 */
static bool is_stack_used_up(const struct unwind_state *state)
{
	uint64_t left = -state->sp % KERNEL_STACK_SIZE;

	return state->sp >> 63 && (left == PT_REGS_SIZE || left == FORK_FRAME_SIZE);
}

/*
 * The mark also stands at code of entries that has the user's stack or a CPU's own, from which
 * nothing is ever called: what was interrupted there is not outermost. A new task that was forked
 * begins with the registers of the program.
 */
static enum unwind_result end(struct unwind_state *state)
{
	bool at_entry = unwind_is_at_entry(state->sp);

	if (state->signal && !at_entry && !is_stack_used_up(state))
		return UNWIND_LOST;
	return at_entry && unwind_from_registers(state, state->sp) == UNWIND_USER ? UNWIND_USER
										  : UNWIND_END;
}

enum unwind_result unwind_step_orc(struct unwind_state *state, const struct kernel_orc *unwinder)
{
	enum unwind_result result;
	struct orc_entry entry;
	bool guessed;
	uint64_t sp;

	if (!find_entry(state, unwinder, &entry, &guessed))
		return UNWIND_LOST;
	if (!guessed && may_be_thunk(state, &entry) && leave_thunk(state, unwinder))
		return UNWIND_CALLER;
	if (entry.type == ORC_TYPE_NONE_OR_END)
		entry.type = is_stack_used_up(state) ? ORC_TYPE_END : ORC_TYPE_NONE;
	if (entry.type == ORC_TYPE_NONE)
		return UNWIND_LOST;
	if (entry.type == ORC_TYPE_END)
		return end(state);
	if (!previous_sp(state, &entry, &sp))
		return UNWIND_LOST;
	result = to_caller(state, &entry, sp);
	if (result == UNWIND_LOST || !previous_bp(state, &entry, sp) ||
	    (guessed && !is_plausible_caller(state, unwinder)))
		return UNWIND_LOST;
	return result;
}
