/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/error.h"
#include "tests/unit/flat_guest.h"
#include "tests/unit/kallsyms_image.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/kernel.h"
#include "vmm/guest/page_walk.h"

#define GUEST_SIZE     (16u << 20)
#define LARGE_PAGE     (2u << 20)
#define TEXT           0xffffffff9c200000ull
#define TEXT_GPA       0x200000ull
#define DATA_GPA       0x400000ull
#define DATA           (TEXT + LARGE_PAGE)
#define TABLES         (DATA + 0x10000)
#define IDT            0xfffffe0000000000ull
#define IDT_GPA        0x1000ull
#define COUNT          1000
#define HANDLERS       4
#define EARLY_HANDLERS (TEXT + 0x1000 + (COUNT - 5) * 0x40)

static const char banner[] = "Linux version 6.99.1-test (builder@host) (gcc) #1 SMP\n";
static const unsigned int vectors[HANDLERS] = { 0, 6, 13, 14 };
static const char *const handlers[HANDLERS] = { "asm_exc_divide_error", "asm_exc_invalid_op",
						"asm_exc_general_protection", "asm_exc_page_fault" };

static void name_symbol(struct kallsyms_symbol *symbol, uint64_t address, char type, const char *name)
{
	symbol->address = address;
	symbol->type = type;
	snprintf(symbol->name, sizeof(symbol->name), "%s", name);
}

/* Per-CPU, _text, the handlers, functions, _etext; then the data. */
static struct kallsyms_symbol *make_symbols(void)
{
	struct kallsyms_symbol *symbols = calloc(COUNT, sizeof(*symbols));
	char name[32];

	if (!symbols)
		abort();
	name_symbol(&symbols[0], 0, 'A', "__per_cpu_start");
	name_symbol(&symbols[1], TEXT, 'T', "_text");
	for (unsigned int i = 0; i < HANDLERS; i++)
		name_symbol(&symbols[2 + i], TEXT + 0x100 + i * 0x40, 'T', handlers[i]);
	for (unsigned int i = 6; i < COUNT - 4; i++) {
		snprintf(name, sizeof(name), "function_%u", i);
		name_symbol(&symbols[i], TEXT + 0x1000 + i * 0x40, 't', name);
	}
	name_symbol(&symbols[COUNT - 5], EARLY_HANDLERS, 't', "early_idt_handler_array");
	name_symbol(&symbols[COUNT - 4], TEXT + 0x100000, 'T', "_etext");
	name_symbol(&symbols[COUNT - 3], DATA, 'D', "linux_banner");
	name_symbol(&symbols[COUNT - 2], DATA + 0x1000, 'R', "__start_notes");
	name_symbol(&symbols[COUNT - 1], DATA + 0x1024, 'R', "__stop_notes");
	return symbols;
}

static void write_gate(struct flat_guest *guest, unsigned int vector, uint64_t handler)
{
	uint64_t low = (handler & 0xffff) | 0x10ull << 16 | 0x8e00ull << 32 | (handler >> 16 & 0xffff) << 48;

	flat_guest_write_u64(guest, IDT_GPA + vector * 16, low);
	flat_guest_write_u64(guest, IDT_GPA + vector * 16 + 8, handler >> 32);
}

static void write_notes(struct flat_guest *guest)
{
	static const uint32_t header[3] = { 4, 20, 3 };
	uint8_t *notes = guest->memory + DATA_GPA + 0x1000;

	memcpy(notes, header, sizeof(header));
	memcpy(notes + 12, "GNU", 4);
	memset(notes + 16, 0xab, 20);
}

/* A guest with a kernel whose kallsyms is in LAYOUT; its CR3 is the kernel half of a pair. */
static void make_guest(struct flat_guest *guest, enum kallsyms_layout layout)
{
	struct kallsyms_symbol *symbols = make_symbols();
	uint64_t user_half, kernel_half;

	flat_guest_create(guest, GUEST_SIZE);
	user_half = guest->registers.paging.cr3;
	kernel_half = flat_guest_table(guest);
	guest->registers.paging.cr3 = kernel_half;
	flat_guest_map(guest, kernel_half, TEXT, TEXT_GPA, LARGE_PAGE, 0);
	flat_guest_map(guest, kernel_half, DATA, DATA_GPA, LARGE_PAGE, 0);
	flat_guest_map(guest, kernel_half, IDT, IDT_GPA, 4096, 0);
	flat_guest_map(guest, user_half, TEXT, TEXT_GPA, 4096, 0); /* the entry code alone */
	flat_guest_map(guest, user_half, IDT, IDT_GPA, 4096, 0);
	memcpy(guest->memory + DATA_GPA, banner, sizeof(banner));
	kallsyms_image_write(layout, symbols, COUNT, TEXT, TABLES, guest->memory + DATA_GPA + (TABLES - DATA),
			     LARGE_PAGE - (TABLES - DATA));
	write_notes(guest);
	for (unsigned int i = 0; i < HANDLERS; i++)
		write_gate(guest, vectors[i], TEXT + 0x100 + i * 0x40);
	guest->registers.idt_base = IDT;
	guest->registers.idt_limit = 0xfff;
	free(symbols);
}

static int find(struct flat_guest *guest, struct guest_kernel **kernel)
{
	*kernel = NULL;
	return guest_kernel_find(kernel, &guest->view, &guest->registers);
}

static void check_kernel(const struct guest_kernel *kernel)
{
	struct symbol symbol;

	CHECK_EQUAL(kernel->text_start, TEXT);
	CHECK_EQUAL(kernel->text_end, TEXT + 0x100000);
	CHECK_STRING(kernel->release, "6.99.1-test");
	CHECK_EQUAL(kernel->build_id_size, 20);
	CHECK_EQUAL(kernel->build_id[19], 0xab);
	CHECK_EQUAL(symbols_count(kernel->symbols), COUNT - 1); /* the per-CPU one is no address */
	REQUIRE(symbols_find(kernel->symbols, TEXT + 0x1000 + 500 * 0x40 + 3, &symbol));
	CHECK_STRING(symbol.name, "function_500");
	CHECK_EQUAL(symbol.end - symbol.start, 0x40);
	CHECK(!symbols_find(kernel->symbols, 0x1234, &symbol));
	CHECK(!symbols_find(kernel->symbols, DATA + 0x2000, &symbol));
	CHECK(!kernel->unwinder);
	CHECK_EQUAL(kernel->module_count, 0);
}

TEST(kernel, is_found_with_every_layout_of_kallsyms)
{
	for (int layout = 0; layout < KALLSYMS_LAYOUTS; layout++) {
		struct guest_kernel *kernel;
		struct flat_guest guest;

		make_guest(&guest, (enum kallsyms_layout)layout);
		CHECK_EQUAL(find(&guest, &kernel), 0);
		if (kernel)
			check_kernel(kernel);
		guest_kernel_free(kernel);
		flat_guest_destroy(&guest);
	}
}

TEST(kernel, is_found_from_the_user_half_of_kpti)
{
	struct guest_translation translation;
	struct guest_kernel *kernel;
	struct flat_guest guest;

	make_guest(&guest, KALLSYMS_6_12);
	guest.registers.paging.cr3 |= 0x1000;
	guest.registers.cpl = 3;
	REQUIRE_EQUAL(find(&guest, &kernel), 0);
	check_kernel(kernel);
	CHECK_EQUAL(guest_translate(&guest.view, &kernel->paging, DATA, &translation), 0);
	guest_kernel_free(kernel);
	flat_guest_destroy(&guest);
}

TEST(kernel, symbols_that_disagree_with_the_idt_are_not_used)
{
	struct guest_kernel *kernel;
	struct flat_guest guest;

	make_guest(&guest, KALLSYMS_6_12);
	write_gate(&guest, 13, TEXT + 0x1000 + 50 * 0x40 + 8);
	CHECK_EQUAL(find(&guest, &kernel), -EINVAL);
	CHECK(strstr(error_message(), "IDT"));
	write_gate(&guest, 13, TEXT + 0x180);
	write_gate(&guest, 14, TEXT + 0x180); /* a handler, but not that of page faults */
	CHECK_EQUAL(find(&guest, &kernel), -EINVAL);
	flat_guest_destroy(&guest);
}

TEST(kernel, symbols_that_disagree_with_the_banner_are_not_used)
{
	struct guest_kernel *kernel;
	struct flat_guest guest;

	make_guest(&guest, KALLSYMS_7_2);
	guest.memory[DATA_GPA] = 'l';
	CHECK_EQUAL(find(&guest, &kernel), -EINVAL);
	CHECK(strstr(error_message(), "linux_banner"));
	flat_guest_destroy(&guest);
}

TEST(kernel, that_handles_no_exceptions_yet_is_tried_later)
{
	struct guest_kernel *kernel;
	struct flat_guest guest;

	make_guest(&guest, KALLSYMS_6_12);
	guest.registers.idt_limit = 0;
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "starting"));
	flat_guest_destroy(&guest);
}

/* The stubs of a starting kernel, where the symbols have them. */
TEST(kernel, that_is_starting_is_found_by_its_early_handlers)
{
	struct guest_kernel *kernel;
	struct flat_guest guest;

	make_guest(&guest, KALLSYMS_6_12);
	for (unsigned int i = 0; i < HANDLERS; i++)
		write_gate(&guest, vectors[i], EARLY_HANDLERS + vectors[i] * 9);
	REQUIRE_EQUAL(find(&guest, &kernel), 0);
	check_kernel(kernel);
	guest_kernel_free(kernel);
	write_gate(&guest, 0, EARLY_HANDLERS + 1);
	CHECK_EQUAL(find(&guest, &kernel), -EINVAL);
	flat_guest_destroy(&guest);
}

TEST(kernel, tables_that_are_broken_give_no_names)
{
	struct guest_kernel *kernel;
	struct flat_guest guest;

	make_guest(&guest, KALLSYMS_6_12);
	guest.memory[DATA_GPA + (TABLES - DATA) + 8]++; /* the first name's length */
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "kallsyms"));
	flat_guest_destroy(&guest);
}

TEST(kernel, is_not_found_where_there_is_none)
{
	struct guest_kernel *kernel;
	struct flat_guest guest;

	flat_guest_create(&guest, GUEST_SIZE);
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "no Linux kernel"));
	guest.registers.paging.efer = 0;
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "64-bit"));
	flat_guest_destroy(&guest);
}

TEST(kernel, refresh_gives_a_copy)
{
	struct guest_kernel *kernel, *newer = NULL;
	struct flat_guest guest;

	make_guest(&guest, KALLSYMS_5_10);
	REQUIRE_EQUAL(find(&guest, &kernel), 0);
	CHECK_EQUAL(guest_kernel_refresh(&newer, kernel, &guest.view), 0);
	guest_kernel_free(kernel);
	if (newer)
		check_kernel(newer);
	guest_kernel_free(newer);
	flat_guest_destroy(&guest);
}
