/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/unwind_step.h"

#include <string.h>

#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/call_site.h"

#define PAGE      4096ull
#define NO_PAGE   1ull /* never the address of one */
#define CS_USER32 0x23 /* arch/x86/include/asm/segment.h, __USER32_CS */
/* TOP_OF_KERNEL_STACK_PADDING (arch/x86/include/asm/thread_info.h): with CONFIG_X86_FRED (6.9),
 * else 0. */
#define FRED_PADDING 16
/* The same of a 32-bit kernel: more with CONFIG_VM86. */
#define PADDING_32      8
#define PADDING_32_VM86 16

/*
 * Word offsets of registers in struct pt_regs (arch/x86/include/asm/ptrace.h), by DWARF number. The
 * stack pointer is in the part that the CPU pushes.
 */
static const uint8_t regs_word[DWARF_RIP] = {
	[DWARF_RAX] = 10, [DWARF_RDX] = 12, [DWARF_RCX] = 11, [DWARF_RBX] = 5,
	[DWARF_RSI] = 13, [DWARF_RDI] = 14, [DWARF_RBP] = 4,  [DWARF_RSP] = 19,
	[DWARF_R8] = 9,   [9] = 8,          [DWARF_R10] = 7,  [11] = 6,
	[12] = 3,         [DWARF_R13] = 2,  [14] = 1,         [15] = 0,
};

#define REGS_IP (16 * 8ull)

/* The same of a 32-bit kernel. Its struct has all members for interrupts of the kernel, too: since
 * 5.4 the entry code adds those that the CPU does not push (arch/x86/entry/entry_32.S,
 * FIXUP_FRAME).
 */
static const uint8_t regs_word_32[DWARF_R8] = {
	[DWARF_RAX] = 6, [DWARF_RDX] = 2, [DWARF_RCX] = 1, [DWARF_RBX] = 0,
	[DWARF_RSI] = 3, [DWARF_RDI] = 4, [DWARF_RBP] = 5, [DWARF_RSP] = 15,
};

#define REGS_IP_32 12
#define REGS_CS_32 13

void stack_reader_start(struct stack_reader *reader, const struct guest_view *view,
			const struct guest_paging *paging)
{
	*reader = (struct stack_reader){ .view = view, .paging = paging, .page = NO_PAGE };
}

/* Not inlined, as read_unmapped(): a read in the current page needs no stack protector. */
static __attribute__((noinline)) bool load_page(struct stack_reader *reader, uint64_t page)
{
	struct guest_translation translation;

	reader->page = NO_PAGE;
	if (guest_translate(reader->view, reader->paging, page, &translation))
		return false;
	reader->gpa = translation.gpa;
	reader->mapped = guest_physical_pointer(reader->view, translation.gpa, PAGE);
	reader->page = page;
	return true;
}

static __attribute__((noinline)) bool read_unmapped(struct stack_reader *reader, uint64_t offset,
						    unsigned int width, uint64_t *value)
{
	uint64_t read = 0;

	if (guest_read_physical(reader->view, reader->gpa + offset, &read, width))
		return false;
	*value = read;
	return true;
}

bool stack_read(struct stack_reader *reader, uint64_t gva, unsigned int width, uint64_t *value)
{
	uint64_t page = gva & ~(PAGE - 1), offset = gva - page, word;

	if (gva + width > reader->end)
		reader->end = gva + width;
	if (gva % width || (page != reader->page && !load_page(reader, page)))
		return false;
	if (!reader->mapped)
		return read_unmapped(reader, offset, width, value);
	/* The aligned word that contains it. */
	memcpy(&word, reader->mapped + (offset & ~7ull), sizeof(word));
	*value = word >> offset % 8 * 8 & UINT64_MAX >> (64 - width * 8);
	return true;
}

bool unwind_is_after_call(const struct unwind_state *state, uint64_t address)
{
	uint8_t code[CALL_SITE_SIZE];

	return !guest_read_virtual(state->stack.view, state->stack.paging, address - sizeof(code),
				   code, sizeof(code)) &&
	       call_site_matches(code, sizeof(code));
}

static bool is_at_entry_32(uint64_t sp)
{
	uint64_t left = -sp % KERNEL_STACK_SIZE_32;

	return left == PT_REGS_SIZE_32 + PADDING_32 || left == PT_REGS_SIZE_32 + PADDING_32_VM86;
}

bool unwind_is_at_entry(const struct unwind_state *state)
{
	uint64_t sp = state->sp, left = -sp % KERNEL_STACK_SIZE;

	if (state->word == 4)
		return is_at_entry_32(sp);
	return sp >> 63 && (left == PT_REGS_SIZE || left == PT_REGS_SIZE + FRED_PADDING);
}

enum unwind_result unwind_from_interrupt_frame(struct unwind_state *state, uint64_t frame)
{
	uint64_t ip, cs, sp;

	if (!stack_read(&state->stack, frame, 8, &ip) ||
	    !stack_read(&state->stack, frame + 8, 8, &cs) ||
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

/* In pt_regs, the upper half of the word with CS has flags of the entry code. */
static enum unwind_result from_registers_32(struct unwind_state *state, uint64_t regs)
{
	struct stack_reader *stack = &state->stack;
	uint64_t cs;

	for (unsigned int i = 0; i < DWARF_R8; i++)
		if (!stack_read(stack, regs + regs_word_32[i] * 4ull, 4, &state->registers[i]))
			return UNWIND_LOST;
	if (!stack_read(stack, regs + REGS_IP_32 * 4, 4, &state->ip) ||
	    !stack_read(stack, regs + REGS_CS_32 * 4, 4, &cs))
		return UNWIND_LOST;
	state->sp = state->registers[DWARF_RSP];
	state->bp = state->registers[DWARF_RBP];
	state->signal = true;
	state->user_is_long = false;
	return (cs & 3) == 3 ? UNWIND_USER : UNWIND_CALLER;
}

enum unwind_result unwind_from_registers(struct unwind_state *state, uint64_t regs)
{
	struct stack_reader *stack = &state->stack;
	enum unwind_result result;

	if (state->word == 4)
		return from_registers_32(state, regs);
	state->has_registers = true;
	for (unsigned int i = 0; i < DWARF_RIP; i++)
		state->has_registers &=
			stack_read(stack, regs + regs_word[i] * 8ull, 8, &state->registers[i]);
	if (!state->has_registers)
		return UNWIND_LOST;
	result = unwind_from_interrupt_frame(state, regs + REGS_IP);
	state->bp = state->registers[DWARF_RBP];
	return result;
}
