/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind_step.h"

#include <string.h>

#include "vmm/guest/page_walk.h"

#define PAGE      4096ull
#define NO_PAGE   1ull /* never the address of one */
#define CS_USER32 0x23 /* arch/x86/include/asm/segment.h, __USER32_CS */

/* struct pt_regs, arch/x86/include/asm/ptrace.h. */
enum {
	REGS_R13 = 2 * 8,
	REGS_BP = 4 * 8,
	REGS_R10 = 7 * 8,
	REGS_DX = 12 * 8,
	REGS_DI = 14 * 8,
	REGS_IP = 16 * 8,
};

void stack_reader_start(struct stack_reader *reader, const struct guest_view *view,
			const struct guest_paging *paging)
{
	*reader = (struct stack_reader){ .view = view, .paging = paging, .page = NO_PAGE };
}

static bool load_page(struct stack_reader *reader, uint64_t page)
{
	struct guest_translation translation;

	reader->page = NO_PAGE;
	if (guest_translate(reader->view, reader->paging, page, &translation))
		return false;
	reader->gpa = translation.gpa;
	reader->here = guest_physical_pointer(reader->view, translation.gpa, PAGE);
	reader->page = page;
	return true;
}

bool stack_read(struct stack_reader *reader, uint64_t gva, unsigned int width, uint64_t *value)
{
	uint64_t page = gva & ~(PAGE - 1), read = 0;

	if (gva % width || (page != reader->page && !load_page(reader, page)))
		return false;
	if (reader->here)
		memcpy(&read, reader->here + (gva - page), width);
	else if (guest_read_physical(reader->view, reader->gpa + (gva - page), &read, width))
		return false;
	*value = read;
	return true;
}

enum unwind_result unwind_from_interrupt_frame(struct unwind_state *state, uint64_t frame)
{
	uint64_t ip, cs, sp;

	if (!stack_read(&state->stack, frame, 8, &ip) || !stack_read(&state->stack, frame + 8, 8, &cs) ||
	    !stack_read(&state->stack, frame + 24, 8, &sp))
		return UNWIND_LOST;
	state->ip = ip;
	state->sp = sp;
	state->signal = true;
	if ((cs & 3) == 3) {
		state->user_is_long = (cs & 0xffff) != CS_USER32;
		return UNWIND_USER;
	}
	return UNWIND_CALLER;
}

enum unwind_result unwind_from_registers(struct unwind_state *state, uint64_t regs)
{
	struct stack_reader *stack = &state->stack;
	enum unwind_result result;

	state->has_registers = stack_read(stack, regs + REGS_DX, 8, &state->dx) &&
			       stack_read(stack, regs + REGS_DI, 8, &state->di) &&
			       stack_read(stack, regs + REGS_R10, 8, &state->r10) &&
			       stack_read(stack, regs + REGS_R13, 8, &state->r13) &&
			       stack_read(stack, regs + REGS_BP, 8, &state->registers_bp);
	if (!state->has_registers)
		return UNWIND_LOST;
	result = unwind_from_interrupt_frame(state, regs + REGS_IP);
	state->bp = state->registers_bp;
	return result;
}
