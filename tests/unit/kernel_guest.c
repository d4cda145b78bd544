/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernel_guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT   KERNEL_GUEST_SYMBOLS
#define IDT     0xfffffe0000000000ull
#define IDT_GPA 0x1000ull

const unsigned int kernel_guest_vectors[KERNEL_GUEST_HANDLERS] = { 0, 6, 13, 14 };

static void name_symbol(struct kallsyms_symbol *symbol, uint64_t address, char type,
			const char *name)
{
	symbol->address = address;
	symbol->type = type;
	snprintf(symbol->name, sizeof(symbol->name), "%s", name);
}

/* Per-CPU, _text, the handlers, functions, _etext; then the data. */
static struct kallsyms_symbol *make_symbols(uint64_t text)
{
	static const char *const handlers[KERNEL_GUEST_HANDLERS] = { "asm_exc_divide_error",
								     "asm_exc_invalid_op",
								     "asm_exc_general_protection",
								     "asm_exc_page_fault" };
	struct kallsyms_symbol *symbols = calloc(COUNT, sizeof(*symbols));
	uint64_t data = text + KERNEL_GUEST_PAGE;
	char name[32];

	if (!symbols)
		abort();
	name_symbol(&symbols[0], 0, 'A', "__per_cpu_start");
	name_symbol(&symbols[1], text, 'T', "_text");
	for (unsigned int i = 0; i < KERNEL_GUEST_HANDLERS; i++)
		name_symbol(&symbols[2 + i], text + 0x100 + i * 0x40ull, 'T', handlers[i]);
	for (unsigned int i = 6; i < COUNT - 9; i++) {
		snprintf(name, sizeof(name), "function_%u", i);
		name_symbol(&symbols[i], text + 0x1000 + i * 0x40ull, 't', name);
	}
	name_symbol(&symbols[COUNT - 9], text + KERNEL_GUEST_EARLY_HANDLERS, 't',
		    "early_idt_handler_array");
	name_symbol(&symbols[COUNT - 8], text + 0x100000, 'T', "_etext");
	name_symbol(&symbols[COUNT - 7], data, 'D', "linux_banner");
	name_symbol(&symbols[COUNT - 6], data + 0x1000, 'R', "__start_notes");
	name_symbol(&symbols[COUNT - 5], data + 0x1024, 'R', "__stop_notes");
	name_symbol(&symbols[COUNT - 4], data + KERNEL_GUEST_TICKS, 'D', "jiffies_64");
	name_symbol(&symbols[COUNT - 3], data + KERNEL_GUEST_MODULES, 'D', "modules");
	name_symbol(&symbols[COUNT - 2], data + KERNEL_GUEST_BTF, 'R', "__start_BTF");
	name_symbol(&symbols[COUNT - 1], data + KERNEL_GUEST_BTF + KERNEL_GUEST_BTF_SIZE, 'R',
		    "__stop_BTF");
	return symbols;
}

void kernel_guest_write_gate(struct flat_guest *guest, unsigned int vector, uint64_t handler)
{
	uint64_t low = (handler & 0xffff) | 0x10ull << 16 | 0x8e00ull << 32 |
		       (handler >> 16 & 0xffff) << 48;

	flat_guest_write_u64(guest, IDT_GPA + vector * 16ull, low);
	flat_guest_write_u64(guest, IDT_GPA + vector * 16ull + 8, handler >> 32);
}

static void write_notes(uint8_t *notes)
{
	static const uint32_t header[3] = { 4, 20, 3 };

	memcpy(notes, header, sizeof(header));
	memcpy(notes + 12, "GNU", 4);
	memset(notes + 16, 0xab, 20);
}

/* A pair of top tables. The kernel's one is at the lower page, which is CR3. */
static void make_tables(struct flat_guest *guest, const struct kernel_guest_location *place)
{
	uint64_t user_half = flat_guest_table(guest), kernel_half;

	if (!(user_half & 0x1000))
		user_half = flat_guest_table(guest);
	kernel_half = flat_guest_table(guest);
	flat_guest_map(guest, kernel_half, place->gva, place->gpa, KERNEL_GUEST_PAGE, 0);
	flat_guest_map(guest, kernel_half, place->gva + KERNEL_GUEST_PAGE,
		       place->gpa + KERNEL_GUEST_PAGE, KERNEL_GUEST_PAGE, 0);
	flat_guest_map(guest, kernel_half, IDT, IDT_GPA, 4096, 0);
	flat_guest_map(guest, user_half, place->gva, place->gpa, 4096, 0); /* the entry code only */
	flat_guest_map(guest, user_half, IDT, IDT_GPA, 4096, 0);
	guest->registers.paging.cr3 = kernel_half;
}

void kernel_guest_start(struct flat_guest *guest, enum kallsyms_layout layout,
			const struct kernel_guest_location *place)
{
	struct kallsyms_symbol *symbols = make_symbols(place->gva);
	uint8_t *data = guest->memory + place->gpa + KERNEL_GUEST_PAGE;

	make_tables(guest, place);
	memcpy(data, place->banner, strlen(place->banner) + 1);
	kallsyms_image_write(layout, symbols, COUNT, place->gva,
			     place->gva + KERNEL_GUEST_PAGE + KERNEL_GUEST_TABLES,
			     data + KERNEL_GUEST_TABLES, KERNEL_GUEST_PAGE - KERNEL_GUEST_TABLES);
	write_notes(data + 0x1000);
	for (unsigned int i = 0; i < KERNEL_GUEST_HANDLERS; i++)
		kernel_guest_write_gate(guest, kernel_guest_vectors[i],
					place->gva + 0x100 + i * 0x40ull);
	guest->registers.idt_base = IDT;
	guest->registers.idt_limit = 0xfff;
	free(symbols);
}
