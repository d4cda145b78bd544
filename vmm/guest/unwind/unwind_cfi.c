/* SPDX-License-Identifier: Apache-2.0 */
/* DWARF 5, 6.4.3: from the registers of one frame to those of its caller. */
#include <assert.h>

#include "vmm/guest/unwind/unwind_step.h"

#define PLT_ENTRY_SIZE 16

/* RSP, RBP and RBX are tracked; the others are known only up to the next call. */
static bool read_register(const struct unwind_state *state, unsigned int number, uint64_t *value)
{
	switch (number) {
	case DWARF_RSP:
		*value = state->sp;
		return true;
	case DWARF_RBP:
		*value = state->bp;
		return !state->bp_lost;
	case DWARF_RBX:
		*value = state->bx;
		return !state->bx_lost;
	default:
		assert(number < DWARF_RIP);
		*value = state->registers[number];
		return state->has_registers;
	}
}

static bool find_cfa(struct unwind_state *state, const struct cfi_rule *rule, uint64_t *cfa)
{
	uint64_t base;

	if (!read_register(state, rule->cfa_register, &base))
		return false;
	base += (uint64_t)(int64_t)rule->cfa_offset;
	switch (rule->cfa) {
	case CFI_CFA_REGISTER:
		*cfa = base;
		return true;
	case CFI_CFA_MEMORY:
		*cfa = (uint64_t)(int64_t)rule->cfa_addend;
		if (!stack_read(&state->stack, base, 8, &base))
			return false;
		*cfa += base;
		return true;
	case CFI_CFA_PLT:
		*cfa = base + ((int64_t)(state->ip % PLT_ENTRY_SIZE) >= rule->cfa_addend ? 8 : 0);
		return true;
	default:
		return false;
	}
}

static bool read_at(struct unwind_state *state, uint64_t base, int16_t offset, uint64_t *value)
{
	return stack_read(&state->stack, base + (uint64_t)(int64_t)offset, 8, value);
}

/* The caller's value of a register that is not CFI_SAME. */
static bool read_saved(struct unwind_state *state, uint8_t location, int16_t offset, uint64_t cfa,
		       uint64_t *value)
{
	switch (location) {
	case CFI_AT_CFA:
		return read_at(state, cfa, offset, value);
	case CFI_AT_RSP:
		return read_at(state, state->sp, offset, value);
	case CFI_AT_RBP:
		return !state->bp_lost && read_at(state, state->bp, offset, value);
	case CFI_REGISTER:
		return read_register(state, (unsigned int)offset, value);
	default:
		return false;
	}
}

/* Threads that are created without libc may start with return address 0. */
enum unwind_result unwind_step_cfi(struct unwind_state *state, const struct cfi_rule *rule)
{
	uint64_t cfa, ip, bp = state->bp, bx = state->bx;
	bool bp_lost = state->bp_lost, bx_lost = state->bx_lost;

	if (rule->cfa == CFI_CFA_UNKNOWN)
		return UNWIND_LOST;
	if (rule->ip == CFI_UNDEFINED)
		return UNWIND_END;
	if (!find_cfa(state, rule, &cfa) || (cfa < state->sp && !rule->signal) ||
	    !read_saved(state, rule->ip, rule->ip_offset, cfa, &ip))
		return UNWIND_LOST;
	if (!ip)
		return UNWIND_END;
	/* Both are read with this frame's registers before those are replaced. */
	if (rule->bp != CFI_SAME)
		bp_lost = !read_saved(state, rule->bp, rule->bp_offset, cfa, &bp);
	if (rule->bx != CFI_SAME)
		bx_lost = !read_saved(state, rule->bx, rule->bx_offset, cfa, &bx);
	state->ip = ip;
	state->sp = cfa;
	state->bp = bp;
	state->bx = bx;
	state->bp_lost = bp_lost;
	state->bx_lost = bx_lost;
	state->signal = rule->signal;
	state->has_registers = false;
	return UNWIND_CALLER;
}
