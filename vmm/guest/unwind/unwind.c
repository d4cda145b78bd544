/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/unwind.h"

#include <string.h>

#include "shared/clock_ns.h"
#include "shared/sample_record.h"
#include "vmm/guest/unwind/unwind_step.h"

#define FRAMES_PER_CHECK 8 /* of the deadline */

static bool is_check_due(const struct guest_callchain *chain, unsigned int used)
{
	return (chain->slow_memory && used) || used % FRAMES_PER_CHECK == FRAMES_PER_CHECK - 1;
}

/* False: no room, or no time left. */
static bool append(struct guest_callchain *chain, uint64_t address, uint16_t *depth)
{
	unsigned int used = chain->kernel_depth + (unsigned int)chain->user_depth;

	if (used >= chain->capacity ||
	    (is_check_due(chain, used) && deadline_passed(chain->deadline)))
		return false;
	chain->addresses[used] = address;
	++*depth;
	return true;
}

static enum unwind_result kernel_step(struct unwind_state *state, const struct kernel_orc *orc)
{
	uint64_t ip = state->ip, sp = state->sp;
	enum unwind_result result =
		orc ? unwind_step_orc(state, orc) : unwind_step_frame_pointer(state);

	/* The capacity bounds the walk, but a step without progress would fill it with one address.
	 */
	if (result == UNWIND_CALLER &&
	    (state->ip < (state->word == 8 ? KERNEL_TEXT_START : KERNEL_START_32) ||
	     (state->ip == ip && state->sp == sp)))
		return UNWIND_LOST;
	return result;
}

/* Walks the kernel part. True: STATE is now that of the user program. */
static bool walk_kernel(struct unwind_state *state, const struct kernel_orc *orc,
			struct guest_callchain *chain)
{
	enum unwind_result result = UNWIND_CALLER;

	while (result == UNWIND_CALLER) {
		if (!append(chain, state->ip, &chain->kernel_depth)) {
			chain->flags |= SAMPLE_KERNEL_TRUNCATED;
			return false;
		}
		result = kernel_step(state, orc);
	}
	if (result == UNWIND_LOST)
		chain->flags |= SAMPLE_KERNEL_TRUNCATED;
	return result == UNWIND_USER;
}

static void walk_user(struct unwind_state *state, struct guest_callchain *chain)
{
	enum unwind_result result = UNWIND_CALLER;

	unwind_enter_user(state);
	while (result == UNWIND_CALLER) {
		if (!append(chain, state->ip, &chain->user_depth)) {
			result = UNWIND_LOST;
			break;
		}
		result = unwind_step_user(state);
	}
	if (result != UNWIND_END)
		chain->flags |= SAMPLE_USER_TRUNCATED;
	chain->user_stack_end = state->stack.end;
}

/* In the order of enum dwarf_register. */
static void copy_registers(struct unwind_state *state, const struct guest_registers *registers)
{
	const uint64_t in_order[DWARF_RIP] = {
		registers->rax, registers->rdx, registers->rcx, registers->rbx,
		registers->rsi, registers->rdi, registers->rbp, registers->rsp,
		registers->r8,  registers->r9,  registers->r10, registers->r11,
		registers->r12, registers->r13, registers->r14, registers->r15,
	};

	memcpy(state->registers, in_order, sizeof(in_order));
	state->has_registers = true;
}

void unwind_start(struct unwind_state *state, const struct guest_registers *registers)
{
	state->ip = registers->rip;
	state->sp = registers->rsp;
	state->bp = registers->rbp;
	state->signal = true;
	copy_registers(state, registers);
}

/*
 * The kernel's own page tables map every kernel stack. Those in CR3 may be the user half of KPTI's
 * pair, which maps only the entry stack.
 */
void guest_unwind(const struct kernel_orc *orc, const struct guest_view *view,
		  const struct guest_registers *registers, struct user_map *map,
		  struct guest_callchain *chain)
{
	struct unwind_state state;

	chain->kernel_depth = 0;
	chain->user_depth = 0;
	chain->flags = 0;
	chain->user_stack_end = 0;
	unwind_start(&state, registers);
	state.word = guest_word_size(&registers->paging);
	state.map = map;
	state.checked_later = chain->slow_memory;
	state.unknown_kernel = chain->unknown_kernel;
	state.guess_early = chain->guess_early;
	state.user_is_long = registers->long_mode;
	if (registers->cpl != 3) {
		stack_reader_start(&state.stack, view, orc ? &orc->paging : &registers->paging);
		if (!walk_kernel(&state, orc, chain))
			return;
	}
	stack_reader_start(&state.stack, view, &registers->paging);
	walk_user(&state, chain);
}
