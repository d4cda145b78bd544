/* SPDX-License-Identifier: Apache-2.0 */
/* The rules are those of arch/x86/kernel/unwind_orc.c, unwind_next_frame(). */
#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/unwind_step.h"

#define THUNK_SIZE 64ull /* bytes, at most */
#define RET        0xc3
/* Bytes: a struct pt_regs and a struct inactive_task_frame. */
#define FORK_FRAME_SIZE (PT_REGS_SIZE + 56)

/*
 * The kernel assumes a frame pointer in code without a table. BPF programs have one; a module that
 * was just loaded does not.
 */
static const struct orc_entry generated_code = {
	.sp_offset = 16,
	.bp_offset = -16,
	.sp_register = ORC_BP,
	.bp_register = ORC_PREVIOUS_SP,
	.type = ORC_TYPE_CALL,
};

/* Only the return address was pushed, as by a call through a NULL pointer. */
static const struct orc_entry just_called = { .sp_offset = 8,
					      .sp_register = ORC_SP,
					      .type = ORC_TYPE_CALL };
/* The frame pointer was pushed, too, but still is the caller's. */
static const struct orc_entry just_pushed = { .sp_offset = 16,
					      .sp_register = ORC_SP,
					      .type = ORC_TYPE_CALL };

/* Code that called another function has a frame. */
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

/* A return address may be past the end of its function: look up the call before it. */
static bool find_entry(const struct unwind_state *state, const struct kernel_orc *orc,
		       struct orc_entry *entry, bool *guessed)
{
	uint64_t ip = state->signal ? state->ip : state->ip - 1;
	const struct orc_table *table = kernel_orc_table(orc, ip);

	*guessed = !table;
	if (table)
		return orc_find(table, orc->format, ip, entry);
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

/* The caller's stack pointer, or the address of the registers. */
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

/* Is the guessed caller known code after a call? */
static bool is_plausible_caller(const struct unwind_state *state, const struct kernel_orc *orc)
{
	return kernel_orc_table(orc, state->ip - 1) && unwind_is_after_call(state, state->ip);
}

/*
 * A retpoline thunk calls into itself and replaces the return address by the jump target. So the
 * tables do not describe its start, and at its RET the target looks like the caller. The return
 * address of the call to the thunk is on top of the stack or one word above.
 */
static bool leave_thunk(struct unwind_state *state, const struct kernel_orc *orc)
{
	for (uint64_t sp = state->sp; sp <= state->sp + 8; sp += 8) {
		uint64_t ip;

		if (!stack_read(&state->stack, sp, 8, &ip))
			return false;
		if (ip - state->ip + THUNK_SIZE < 2 * THUNK_SIZE || !kernel_orc_table(orc, ip) ||
		    !unwind_is_after_call(state, ip))
			continue;
		state->ip = ip;
		state->sp = sp + 8;
		state->signal = false;
		state->has_registers = false;
		return true;
	}
	return false;
}

/* At a RET whose return address does not follow a call. */
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

/* Thunks call nothing, so only an interrupted one is on a stack. */
static bool may_be_thunk(struct unwind_state *state, const struct orc_entry *entry)
{
	return state->signal &&
	       (entry->type == ORC_TYPE_NONE || entry->type == ORC_TYPE_END ||
		entry->type == ORC_TYPE_NONE_OR_END || is_at_thunks_return(state, entry));
}

/*
 * Is the walk at the initial content of a task's stack? Kernel threads and the first CPU's idle
 * task start below a struct pt_regs, those of other CPUs below a struct fork_frame (arch/x86,
 * copy_thread_tls(), initial_stack).
 */
static bool is_at_stack_top(const struct unwind_state *state)
{
	uint64_t left = -state->sp % KERNEL_STACK_SIZE;

	return state->sp >> 63 && (left == PT_REGS_SIZE || left == FORK_FRAME_SIZE);
}

/*
 * Entry code that runs on the user's stack or a CPU's entry stack is also marked as the end,
 * although a frame that is interrupted there is not the outermost. A forked task starts with the
 * registers of its program.
 */
static enum unwind_result end(struct unwind_state *state)
{
	bool at_entry = unwind_is_at_entry(state);

	if (state->signal && !at_entry && !is_at_stack_top(state))
		return UNWIND_LOST;
	return at_entry && unwind_from_registers(state, state->sp) == UNWIND_USER ? UNWIND_USER
										  : UNWIND_END;
}

enum unwind_result unwind_step_orc(struct unwind_state *state, const struct kernel_orc *orc)
{
	enum unwind_result result;
	struct orc_entry entry;
	bool guessed;
	uint64_t sp;

	if (!find_entry(state, orc, &entry, &guessed))
		return UNWIND_LOST;
	if (!guessed && may_be_thunk(state, &entry) && leave_thunk(state, orc))
		return UNWIND_CALLER;
	if (entry.type == ORC_TYPE_NONE_OR_END)
		entry.type = is_at_stack_top(state) ? ORC_TYPE_END : ORC_TYPE_NONE;
	if (entry.type == ORC_TYPE_NONE)
		return UNWIND_LOST;
	if (entry.type == ORC_TYPE_END)
		return end(state);
	if (!previous_sp(state, &entry, &sp))
		return UNWIND_LOST;
	result = to_caller(state, &entry, sp);
	if (result == UNWIND_LOST || !previous_bp(state, &entry, sp) ||
	    (guessed && !is_plausible_caller(state, orc)))
		return UNWIND_LOST;
	return result;
}
