/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/image_identity.h"
#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/module_list.h"

#define GUEST_SIZE      (1u << 20)
#define BASE            0xffffffffc0400000ull /* maps to GPA 0 */
#define HEAD            (BASE + 0x100)
#define MODULE          (BASE + 0x1000)
#define MODULE_KALLSYMS (BASE + 0x2000)
#define SYMTAB          (BASE + 0x3000)
#define TYPES           (BASE + 0x4000)
#define STRINGS         (BASE + 0x5000)
#define NOTES           (BASE + 0x6000)
#define NOTE            (BASE + 0x7000)
#define MODULE_TEXT     (BASE + 0x10000)

/* The layout in the fixture's BTF, and that of notes. */
static const struct module_layout layout = {
	.state = 0,
	.list = 8,
	.name = 24,
	.name_size = 56,
	.text_base = 128,
	.text_size = 136,
	.kallsyms = 384,
	.symtab = 0,
	.num_symtab = 8,
	.strtab = 16,
	.has_types = true,
	.typetab = 24,
	.has_notes = true,
	.notes_attrs = 392,
	.notes = 8,
	.attrs = 16,
	.attr_size = 16,
	.attr_stride = 56,
	.attr_address = 24,
	.has_orc = true,
	.num_orcs = 400,
	.orc_ips = 408,
	.orc_entries = 416,
	.has_per_cpu = true,
	.per_cpu = 424,
	.per_cpu_size = 432,
};

static struct span read_fixture(const char *path, uint8_t *bytes, size_t capacity)
{
	FILE *file = fopen(path, "rb");
	size_t size = file ? fread(bytes, 1, capacity, file) : 0;

	if (file)
		fclose(file);
	return span_of(bytes, size);
}

TEST(modules, layout_is_read_from_btf)
{
	struct module_layout read;
	uint8_t bytes[4096];
	struct btf btf;

	REQUIRE_EQUAL(
		btf_open(&btf, read_fixture("tests/fuzz/corpus/btf/module", bytes, sizeof(bytes))),
		0);
	REQUIRE_EQUAL(module_layout_read(&read, &btf), 0);
	CHECK_EQUAL(read.list, layout.list);
	CHECK_EQUAL(read.name, layout.name);
	CHECK_EQUAL(read.name_size, layout.name_size);
	CHECK_EQUAL(read.text_base, layout.text_base);
	CHECK_EQUAL(read.text_size, layout.text_size);
	CHECK_EQUAL(read.kallsyms, layout.kallsyms);
	CHECK(read.has_types);
	CHECK_EQUAL(read.typetab, layout.typetab);
	CHECK(!read.has_notes);
	CHECK(!read.has_orc);
	btf_close(&btf);
}

TEST(modules, broken_btf_is_refused)
{
	uint8_t bytes[4096];
	struct span whole = read_fixture("tests/fuzz/corpus/btf/module", bytes, sizeof(bytes));
	struct btf btf;

	REQUIRE(whole.size > 24);
	for (size_t size = 0; size < whole.size; size++)
		CHECK_EQUAL(btf_open(&btf, span_of(bytes, size)), -EINVAL);
	bytes[24 + 7] = 0x1f; /* a kind that is not known */
	CHECK_EQUAL(btf_open(&btf, whole), -EINVAL);
}

static void put(struct flat_guest *guest, uint64_t gva, const void *bytes, size_t size)
{
	memcpy(guest->memory + (gva - BASE), bytes, size);
}

static void put_u64(struct flat_guest *guest, uint64_t gva, uint64_t value)
{
	put(guest, gva, &value, sizeof(value));
}

static void put_symbols(struct flat_guest *guest)
{
	static const char strings[] = "\0sized\0unsized\0next\0data";
	const Elf64_Sym symbols[] = {
		{ 0 },
		{ .st_name = 1, .st_value = MODULE_TEXT + 0x200, .st_size = 0x20 },
		{ .st_name = 7, .st_value = MODULE_TEXT + 0x100 },
		{ .st_name = 15, .st_value = MODULE_TEXT + 0x180 },
		{ .st_name = 20, .st_value = MODULE_TEXT + 0x8000 },
	};

	put(guest, SYMTAB, symbols, sizeof(symbols));
	put(guest, TYPES, "?tTtd", 5);
	put(guest, STRINGS, strings, sizeof(strings));
	put_u64(guest, MODULE_KALLSYMS, SYMTAB);
	put_u64(guest, MODULE_KALLSYMS + 8, 5);
	put_u64(guest, MODULE_KALLSYMS + 16, STRINGS);
	put_u64(guest, MODULE_KALLSYMS + 24, TYPES);
}

static void put_notes(struct flat_guest *guest)
{
	static const uint32_t header[3] = { 4, 20, 3 };

	put_u64(guest, NOTES + layout.notes, 1);
	put_u64(guest, NOTES + layout.attrs + layout.attr_size, 36);
	put_u64(guest, NOTES + layout.attrs + layout.attr_address, NOTE);
	put(guest, NOTE, header, sizeof(header));
	put(guest, NOTE + 12, "GNU", 4);
	put_u64(guest, NOTE + 16, 0x1122334455667788);
}

static void make_guest(struct flat_guest *guest)
{
	flat_guest_create(guest, GUEST_SIZE);
	for (uint64_t at = 0; at < GUEST_SIZE / 2; at += 4096)
		flat_guest_map(guest, guest->registers.paging.cr3, BASE + at, at, 4096, 0);
	put_u64(guest, HEAD, MODULE + layout.list);
	put_u64(guest, MODULE + layout.list, HEAD);
	put(guest, MODULE + layout.name, "test_module", 12);
	put_u64(guest, MODULE + layout.text_base, MODULE_TEXT);
	put_u64(guest, MODULE + layout.text_size, 0x1000);
	put_u64(guest, MODULE + layout.kallsyms, MODULE_KALLSYMS);
	put_u64(guest, MODULE + layout.notes_attrs, NOTES);
	put_u64(guest, MODULE + layout.num_orcs, 3);
	put_symbols(guest);
	put_notes(guest);
}

static int read_with_per_cpu(struct flat_guest *guest, struct module_list *list,
			     struct symbols **symbols, struct symbols **per_cpu)
{
	int error;

	*symbols = symbols_new();
	*per_cpu = symbols_new();
	error = module_list_read(list, &guest->view, &guest->registers.paging, HEAD, &layout,
				 *symbols, *per_cpu);
	symbols_finish(*symbols);
	symbols_finish(*per_cpu);
	return error;
}

static int read_list(struct flat_guest *guest, struct module_list *list, struct symbols **symbols)
{
	struct symbols *per_cpu;
	int error = read_with_per_cpu(guest, list, symbols, &per_cpu);

	symbols_free(per_cpu);
	return error;
}

static void check_symbol(const struct symbols *symbols, uint64_t address, const char *name,
			 uint64_t size)
{
	struct symbol symbol;

	REQUIRE(symbols_find(symbols, address, &symbol));
	CHECK_STRING(symbol.name, name);
	CHECK_STRING(symbol.module, "test_module");
	CHECK_EQUAL(symbol.start, address);
	CHECK_EQUAL(symbol.end - symbol.start, size);
}

TEST(modules, name_text_build_id_and_symbols)
{
	struct module_list list;
	struct symbols *symbols;
	struct symbol symbol;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	CHECK_EQUAL(read_list(&guest, &list, &symbols), 0);
	REQUIRE_EQUAL(list.count, 1);
	CHECK_STRING(list.modules[0].name, "test_module");
	CHECK_EQUAL(list.modules[0].start, MODULE_TEXT);
	CHECK_EQUAL(list.modules[0].size, 0x1000);
	CHECK_EQUAL(list.modules[0].build_id_size, 20);
	CHECK_EQUAL(list.modules[0].build_id[0], 0x88);
	CHECK_EQUAL(list.orcs[0].count, 3);
	CHECK_EQUAL(symbols_count(symbols), 4);
	check_symbol(symbols, MODULE_TEXT + 0x100, "unsized", 0x80);
	check_symbol(symbols, MODULE_TEXT + 0x180, "next", 0x80);
	check_symbol(symbols, MODULE_TEXT + 0x200, "sized", 0x20);
	check_symbol(symbols, MODULE_TEXT + 0x8000, "data", 1);
	CHECK(!symbols_find(symbols, MODULE_TEXT + 0x220, &symbol));
	module_list_free(&list);
	symbols_free(symbols);
}

/* Checks the symbols of put_symbols() for a kernel without a table of types, which stores them in
 * st_info or, if IN_SIZE, in st_size. SIZED: the expected size of "sized". */
static void check_old_types(bool in_size, uint64_t sized)
{
	static const char types[] = "?tTtd";
	struct module_layout old = layout;
	struct symbols *symbols = symbols_new(), *per_cpu = symbols_new();
	struct module_list list;
	struct flat_guest guest;

	make_guest(&guest);
	put(&guest, TYPES, "?????", 5);
	old.has_types = false;
	for (uint64_t i = 0; i < 5; i++) {
		Elf64_Sym *symbol = (void *)(guest.memory + (SYMTAB - BASE) + i * sizeof(*symbol));

		symbol->st_info = ELF64_ST_INFO(STB_GLOBAL, i == 4 ? STT_OBJECT : STT_FUNC);
		if (in_size)
			symbol->st_size = (uint8_t)types[i];
		else
			symbol->st_info = (uint8_t)types[i];
	}
	CHECK_EQUAL(module_list_read(&list, &guest.view, &guest.registers.paging, HEAD, &old,
				     symbols, per_cpu),
		    0);
	symbols_finish(symbols);
	CHECK_EQUAL(symbols_count(symbols), 4);
	check_symbol(symbols, MODULE_TEXT + 0x100, "unsized", 0x80);
	check_symbol(symbols, MODULE_TEXT + 0x200, "sized", sized);
	check_symbol(symbols, MODULE_TEXT + 0x8000, "data", 1);
	module_list_free(&list);
	symbols_free(per_cpu);
	symbols_free(symbols);
	flat_guest_destroy(&guest);
}

TEST(modules, types_of_symbols_are_in_the_symbols_before_5_2)
{
	check_old_types(false, 0x20);
	check_old_types(true, 0xe00); /* up to the text's end */
}

/* Until 6.14 they are offsets, later addresses in the kernel's image. */
static void check_per_cpu(uint64_t per_cpu_start)
{
	static const char strings[] = "\0counter\0text\0number";
	const Elf64_Sym table[] = {
		{ 0 },
		{ .st_name = 1, .st_value = per_cpu_start + 0x18, .st_size = 4 },
		{ .st_name = 9, .st_value = MODULE_TEXT + 0x10, .st_size = 8 },
		{ .st_name = 14, .st_value = 0x1234 },
	};
	struct symbols *symbols, *per_cpu;
	struct module_list list;
	struct flat_guest guest;
	struct symbol symbol;

	make_guest(&guest);
	put(&guest, SYMTAB, table, sizeof(table));
	put(&guest, TYPES, "?dta", 4);
	put(&guest, STRINGS, strings, sizeof(strings));
	put_u64(&guest, MODULE_KALLSYMS + 8, 4);
	put_u64(&guest, MODULE + layout.per_cpu, per_cpu_start);
	put_u64(&guest, MODULE + layout.per_cpu_size, 0x40);
	CHECK_EQUAL(read_with_per_cpu(&guest, &list, &symbols, &per_cpu), 0);
	CHECK_EQUAL(symbols_count(symbols), 1);
	CHECK_EQUAL(symbols_count(per_cpu), 1);
	CHECK(!symbols_find_name(per_cpu, "counter", &symbol));
	REQUIRE(symbols_find_name_in_modules(per_cpu, "counter", &symbol));
	CHECK_EQUAL(symbol.start, per_cpu_start + 0x18);
	CHECK_STRING(symbol.module, "test_module");
	module_list_free(&list);
	symbols_free(symbols);
	symbols_free(per_cpu);
	flat_guest_destroy(&guest);
}

TEST(modules, per_cpu_variables_are_separate)
{
	check_per_cpu(0x2a000);
	check_per_cpu(0xffffffff82a00000ull);
}

TEST(modules, list_without_symbols)
{
	struct module_list list;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	CHECK_EQUAL(module_list_read(&list, &guest.view, &guest.registers.paging, HEAD, &layout,
				     NULL, NULL),
		    0);
	REQUIRE_EQUAL(list.count, 1);
	CHECK_STRING(list.modules[0].name, "test_module");
	CHECK_EQUAL(list.modules[0].start, MODULE_TEXT);
	CHECK_EQUAL(list.modules[0].size, 0x1000);
	CHECK_EQUAL(list.modules[0].build_id_size, 20);
	CHECK_EQUAL(list.modules[0].build_id_gva, NOTE + 16);
	CHECK_EQUAL(list.orcs[0].count, 0);
	module_list_free(&list);
}

TEST(modules, broken_list_is_an_error)
{
	struct module_list list;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	put_u64(&guest, MODULE + layout.list, 0);
	CHECK_EQUAL(module_list_read(&list, &guest.view, &guest.registers.paging, HEAD, &layout,
				     NULL, NULL),
		    -EFAULT);
	CHECK_EQUAL(list.count, 1);
	module_list_free(&list);
}

TEST(modules, that_are_being_set_up_are_left_out)
{
	struct module_list list;
	struct symbols *symbols;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	put_u64(&guest, MODULE + layout.state, 3);
	CHECK_EQUAL(read_list(&guest, &list, &symbols), 0);
	CHECK_EQUAL(list.count, 0);
	module_list_free(&list);
	symbols_free(symbols);
}

TEST(modules, circular_list_ends)
{
	struct module_list list;
	struct symbols *symbols;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	put_u64(&guest, MODULE + layout.list, MODULE + layout.list);
	CHECK_EQUAL(read_list(&guest, &list, &symbols), -EFAULT);
	CHECK_EQUAL(list.count, 1);
	module_list_free(&list);
	symbols_free(symbols);
	put_u64(&guest, MODULE + layout.list, 0xdead000000000100);
	CHECK_EQUAL(read_list(&guest, &list, &symbols), -EFAULT);
	CHECK_EQUAL(list.count, 1);
	module_list_free(&list);
	symbols_free(symbols);
}

/* A guest may have this many: the time must not be quadratic. */
TEST(modules, a_million_symbols_without_size_at_one_address)
{
	const uint64_t table = BASE + (4u << 20);
	const uint32_t count = 1u << 20;
	struct module_list list;
	struct symbols *symbols;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	for (uint64_t at = 0; at < count * sizeof(Elf64_Sym); at += 4096)
		flat_guest_map(&guest, guest.registers.paging.cr3, table + at,
			       SYMTAB - BASE + at % 12288, 4096, 0);
	for (unsigned int i = 0; i < 12288 / sizeof(Elf64_Sym); i++)
		put(&guest, SYMTAB + i * sizeof(Elf64_Sym),
		    &(Elf64_Sym){ .st_name = 1, .st_value = MODULE_TEXT + 0x100 },
		    sizeof(Elf64_Sym));
	put(&guest, NOTE, "\0name", 6);
	put(&guest, MODULE_TEXT, "t", 1);
	for (uint64_t at = 0; at < count; at += 4096)
		flat_guest_map(&guest, guest.registers.paging.cr3, table + (32u << 20) + at,
			       MODULE_TEXT - BASE, 4096, 0);
	memset(guest.memory + (MODULE_TEXT - BASE), 't', 4096);
	put_u64(&guest, MODULE_KALLSYMS, table);
	put_u64(&guest, MODULE_KALLSYMS + 8, count);
	put_u64(&guest, MODULE_KALLSYMS + 16, NOTE);
	put_u64(&guest, MODULE_KALLSYMS + 24, table + (32u << 20));
	put_u64(&guest, MODULE + layout.notes_attrs, 0);
	CHECK_EQUAL(read_list(&guest, &list, &symbols), 0);
	CHECK_EQUAL(symbols_count(symbols), count);
	check_symbol(symbols, MODULE_TEXT + 0x100, "name", 0xf00);
	module_list_free(&list);
	symbols_free(symbols);
}

TEST(modules, build_id_among_other_notes)
{
	uint32_t words[16] = { 6, 2, 1, 0x756e694c, 0x78,       0x3131,
			       4, 8, 3, 0x554e47,   0x04030201, 0x08070605 };
	uint8_t id[GUEST_BUILD_ID_MAX];

	REQUIRE_EQUAL(build_id_in_notes(span_of(words, sizeof(words)), id, sizeof(id)), 8);
	CHECK_EQUAL(id[7], 8);
	CHECK_EQUAL(build_id_in_notes(span_of(words, 44), id, sizeof(id)), 0);
	words[7] = 0xffffffff;
	CHECK_EQUAL(build_id_in_notes(span_of(words, sizeof(words)), id, sizeof(id)), 0);
}

static struct flat_guest *replaced_guest;

/* Another build replaces the module before its symbols are read. */
static int read_replaced(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	const uint64_t names = STRINGS - BASE;

	if (gpa >= names && gpa < names + 4096)
		put_u64(replaced_guest, NOTE + 16, 0x8877665544332211);
	memcpy(to, replaced_guest->memory + gpa, size);
	return 0;
}

TEST(modules, replaced_while_its_symbols_are_read)
{
	struct module_list list;
	struct symbols *symbols;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	replaced_guest = &guest;
	guest.region.hva = NULL;
	guest.view.read = read_replaced;
	CHECK_EQUAL(read_list(&guest, &list, &symbols), -EFAULT);
	CHECK_EQUAL(list.count, 0);
	CHECK_EQUAL(symbols_count(symbols), 0);
	module_list_free(&list);
	symbols_free(symbols);

	CHECK_EQUAL(read_list(&guest, &list, &symbols), 0); /* it is known as the other one now */
	REQUIRE_EQUAL(list.count, 1);
	CHECK_EQUAL(list.modules[0].build_id[0], 0x11);
	CHECK_EQUAL(symbols_count(symbols), 4);
	module_list_free(&list);
	symbols_free(symbols);
}
