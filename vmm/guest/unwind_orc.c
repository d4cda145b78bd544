/* SPDX-License-Identifier: Apache-2.0 */
/* The rules are those of arch/x86/kernel/unwind_orc.c, unwind_next_frame(). */
#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind_step.h"

/* What the kernel assumes of code that it generated itself: a frame pointer. */
static const struct orc_entry generated_code = {
	.sp_offset = 16,
	.bp_offset = -16,
	.sp_register = ORC_BP,
	.bp_register = ORC_PREVIOUS_SP,
	.type = ORC_TYPE_CALL,
};

/* A call through a NULL pointer: nothing but the return address was pushed. */
static const struct orc_entry null_call = { .sp_offset = 8, .sp_register = ORC_SP, .type = ORC_TYPE_CALL };

/* A return address may stand behind its function: look for the call before it. */
static bool find_entry(const struct unwind_state *state, const struct guest_unwinder *unwinder,
		       struct orc_entry *entry)
{
	uint64_t ip = state->signal ? state->ip : state->ip - 1;
	const struct orc_table *table = guest_unwinder_table(unwinder, ip);

	if (table)
		return orc_find(table, unwinder->format, ip, entry);
	if (ip && ip < KERNEL_TEXT_START)
		return false;
	*entry = ip ? generated_code : null_call;
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

static bool known_register(const struct unwind_state *state, uint64_t value, uint64_t *known)
{
	*known = value;
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
		return known_register(state, state->r10, sp);
	case ORC_R13:
		return known_register(state, state->r13, sp);
	case ORC_DI:
		return known_register(state, state->di, sp);
	case ORC_DX:
		return known_register(state, state->dx, sp);
	default:
		return false;
	}
}

static enum unwind_result to_caller(struct unwind_state *state, const struct orc_entry *entry, uint64_t sp)
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
			state->bp = state->registers_bp;
		return true;
	case ORC_PREVIOUS_SP:
		return stack_read(&state->stack, sp + offset, 8, &state->bp);
	case ORC_BP:
		return stack_read(&state->stack, state->bp + offset, 8, &state->bp);
	default:
		return false;
	}
}

/* Does a near call (opcode e8) end at RETURN_ADDRESS? */
static bool is_behind_call(const struct unwind_state *state, uint64_t return_address)
{
	uint8_t opcode;

	return !guest_read_virtual(state->stack.view, state->stack.paging, return_address - 5, &opcode, 1) &&
	       opcode == 0xe8;
}

/*
 * Retpoline thunks are marked as undefined, because they replace the return
 * address that their own call pushed. Where one was interrupted before that,
 * the return address still is on top of the stack, behind the call of the thunk.
 */
static enum unwind_result leave_thunk(struct unwind_state *state, const struct guest_unwinder *unwinder)
{
	uint64_t ip;

	if (!state->signal || !stack_read(&state->stack, state->sp, 8, &ip) ||
	    !guest_unwinder_table(unwinder, ip) || !is_behind_call(state, ip))
		return UNWIND_LOST;
	state->ip = ip;
	state->sp += 8;
	state->signal = false;
	state->has_registers = false;
	return UNWIND_CALLER;
}

enum unwind_result unwind_step_orc(struct unwind_state *state, const struct guest_unwinder *unwinder)
{
	enum unwind_result result;
	struct orc_entry entry;
	uint64_t sp;

	if (!find_entry(state, unwinder, &entry))
		return UNWIND_LOST;
	if (entry.type == ORC_TYPE_NONE)
		return leave_thunk(state, unwinder);
	if (entry.type == ORC_TYPE_END)
		return UNWIND_END;
	if (!previous_sp(state, &entry, &sp))
		return UNWIND_LOST;
	result = to_caller(state, &entry, sp);
	if (result == UNWIND_LOST || !previous_bp(state, &entry, sp))
		return UNWIND_LOST;
	return result;
}
