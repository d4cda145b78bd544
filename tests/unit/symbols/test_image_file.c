/* SPDX-License-Identifier: Apache-2.0 */
/* Symbol files from the tables that guests send. */
#include "vmm/symbols/image_file.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/agent_protocol.h"
#include "tests/unit/shim/test.h"
#include "vmm/symbols/elf_symbols.h"

static const uint8_t build_id[20] = { 0xab, 0xcd, 1,  2,  3,  4,  5,  6,  7,  8,
				      9,    10,   11, 12, 13, 14, 15, 16, 17, 18 };

struct table {
	struct agent_symbols head;
	Elf64_Phdr segments[2];
	Elf64_Sym symbols[6];
	char strings[64];
} __attribute__((packed));

static struct table small_table(void)
{
	struct table table = {
		.head = { AGENT_SYMBOLS_SYMTAB, 2, sizeof(table.symbols), sizeof(table.strings) },
		.segments = { { .p_type = PT_LOAD,
				.p_vaddr = 0x400000,
				.p_filesz = 0x1000,
				.p_memsz = 0x1000 },
			      { .p_type = PT_LOAD,
				.p_flags = PF_X,
				.p_offset = 0x1000,
				.p_vaddr = 0x402000,
				.p_filesz = 0x1000,
				.p_memsz = 0x1000 } },
		.symbols = { { 0 },
			     { .st_name = 1,
			       .st_info = STT_FUNC,
			       .st_shndx = 12,
			       .st_value = 0x402010,
			       .st_size = 16 },
			     { .st_name = 7,
			       .st_info = STT_FUNC,
			       .st_shndx = 12,
			       .st_value = 0x402020,
			       .st_size = 16 },
			     { .st_name = 1,
			       .st_info = STT_FUNC,
			       .st_shndx = SHN_UNDEF,
			       .st_value = 0x402030 },
			     { .st_name = 1,
			       .st_info = STT_OBJECT,
			       .st_shndx = 12,
			       .st_value = 0x402040 },
			     { .st_name = 5000,
			       .st_info = STT_FUNC,
			       .st_shndx = 12,
			       .st_value = 0x402050 } },
		.strings = "\0first\0bad\033[2J\n",
	};

	return table;
}

static struct symbols *load(const struct bytes *file, const uint8_t *id)
{
	char path[] = "/tmp/kvmscope-image-XXXXXX";
	struct symbols *symbols = NULL;
	int fd = mkstemp(path);

	CHECK(fd >= 0 && write(fd, file->data, file->size) == (ssize_t)file->size);
	close(fd);
	if (elf_symbols_load(&symbols, path, ELF_FILE_OFFSETS, span_of(id, 20)))
		symbols = NULL;
	unlink(path);
	return symbols;
}

TEST(image_file, has_functions_by_file_offset)
{
	struct table table = small_table();
	static const uint8_t other[20] = { 1 };
	struct symbols *symbols;
	struct symbol symbol;
	struct bytes file;

	image_file_make(&file, span_of(&table, sizeof(table)), span_of(build_id, sizeof(build_id)),
			false);
	REQUIRE(!file.failed && file.size);
	symbols = load(&file, build_id);
	REQUIRE(symbols != NULL);
	CHECK_EQUAL(symbols_count(symbols), 2);
	REQUIRE(symbols_find(symbols, 0x1018, &symbol));
	CHECK_STRING(symbol.name, "first");
	/* A guest must not control a terminal. */
	REQUIRE(symbols_find(symbols, 0x1028, &symbol));
	CHECK_STRING(symbol.name, "bad\\x1b[2J\\x0a");
	symbols_free(symbols);
	CHECK(load(&file, other) == NULL);
	free(file.data);
}

/* The header of FILE's .symtab. */
static Elf64_Shdr symbol_section(const struct bytes *file)
{
	Elf64_Shdr section = { 0 };
	Elf64_Ehdr header;

	memcpy(&header, file->data, sizeof(header));
	for (size_t i = 0; i < header.e_shnum && section.sh_type != SHT_SYMTAB; i++)
		memcpy(&section, file->data + header.e_shoff + i * sizeof(section),
		       sizeof(section));
	return section;
}

/* As readers of ELF files require it; eu-elflint checks it. */
TEST(image_file, local_symbols_precede_others)
{
	struct table table = small_table();
	Elf64_Shdr section;
	Elf64_Sym symbols[3];
	struct bytes file;

	table.symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
	image_file_make(&file, span_of(&table, sizeof(table)), span_of(build_id, sizeof(build_id)),
			false);
	REQUIRE(!file.failed && file.size);
	section = symbol_section(&file);
	REQUIRE_EQUAL(section.sh_size, sizeof(symbols));
	CHECK_EQUAL(section.sh_info, 2);
	memcpy(symbols, file.data + section.sh_offset, sizeof(symbols));
	CHECK_EQUAL(ELF64_ST_BIND(symbols[1].st_info), STB_LOCAL);
	CHECK_EQUAL(ELF64_ST_BIND(symbols[2].st_info), STB_GLOBAL);
	free(file.data);
}

struct unsized_table {
	struct table table;
	struct agent_section sections[2];
} __attribute__((packed));

/* As in a static program: _init in assembly, stubs after its section, an assembly function in
 * .text. */
static struct unsized_table unsized_table(void)
{
	struct unsized_table unsized = { .table = small_table(),
					 .sections = { { 0x402000, 0x17 }, { 0x402040, 0x100 } } };
	const Elf64_Sym init = {
		.st_name = 1, .st_info = STT_FUNC, .st_shndx = 12, .st_value = 0x402000
	};

	unsized.table.symbols[1] = unsized.table.symbols[2] = unsized.table.symbols[3] = init;
	unsized.table.symbols[2].st_value = 0x402040;
	unsized.table.symbols[3].st_value = 0x402080;
	unsized.table.symbols[3].st_size = 16;
	unsized.table.symbols[4] = unsized.table.symbols[5] = (Elf64_Sym){ .st_shndx = SHN_UNDEF };
	return unsized;
}

static bool has_name(const struct symbols *symbols, uint64_t offset)
{
	struct symbol symbol;

	return symbols_find(symbols, offset, &symbol);
}

TEST(image_file, ends_a_symbol_without_size_at_its_section_or_the_next)
{
	struct unsized_table unsized = unsized_table();
	struct symbols *symbols;
	struct bytes file;

	image_file_make(&file, span_of(&unsized, sizeof(unsized)),
			span_of(build_id, sizeof(build_id)), false);
	symbols = load(&file, build_id);
	free(file.data);
	REQUIRE(symbols != NULL);
	CHECK(has_name(symbols, 0x1000) && has_name(symbols, 0x1016));
	CHECK(!has_name(symbols, 0x1017) && !has_name(symbols, 0x103f));
	CHECK(has_name(symbols, 0x1040) && has_name(symbols, 0x107f));
	CHECK(has_name(symbols, 0x108f) && !has_name(symbols, 0x1090));
	symbols_free(symbols);
}

/* Likewise if its section ends before it, or after the last address. */
TEST(image_file, drops_a_symbol_without_size_and_section)
{
	static const struct agent_section wrong[] = {
		{ 0x402010, 16 }, { 0x401000, 0x1000 }, { 0x402000, UINT64_MAX }, { 0, 0 }
	};
	struct unsized_table unsized = unsized_table();
	struct symbols *symbols;
	struct bytes file;

	unsized.sections[1].size = 0;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		unsized.sections[0] = wrong[i];
		image_file_make(&file,
				span_of(&unsized, i ? sizeof(unsized) : sizeof(unsized.table)),
				span_of(build_id, sizeof(build_id)), false);
		symbols = load(&file, build_id);
		free(file.data);
		REQUIRE(symbols != NULL);
		CHECK_EQUAL(symbols_count(symbols), 1);
		CHECK(has_name(symbols, 0x1080));
		symbols_free(symbols);
	}
}

/* Of two symbols at one address the one with a size. */
TEST(image_file, prefers_the_symbol_with_a_size)
{
	struct unsized_table unsized = unsized_table();
	struct symbols *symbols;
	struct bytes file;

	unsized.table.symbols[2].st_value = 0x402080;
	unsized.table.symbols[2].st_name = 7;
	unsized.table.symbols[2].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
	image_file_make(&file, span_of(&unsized, sizeof(unsized)),
			span_of(build_id, sizeof(build_id)), false);
	symbols = load(&file, build_id);
	free(file.data);
	REQUIRE(symbols != NULL);
	CHECK(has_name(symbols, 0x1080) && !has_name(symbols, 0x1090));
	symbols_free(symbols);
}

/* Truncated anywhere, and with any counts. */
TEST(image_file, is_empty_for_a_broken_table)
{
	struct table table = small_table();
	struct bytes file;

	for (size_t size = 0; size < sizeof(table); size += 7) {
		image_file_make(&file, span_of(&table, size), span_of(build_id, sizeof(build_id)),
				false);
		CHECK_EQUAL(file.size, 0);
		free(file.data);
	}
	table.head.segments = UINT32_MAX;
	image_file_make(&file, span_of(&table, sizeof(table)), span_of(build_id, sizeof(build_id)),
			false);
	CHECK_EQUAL(file.size, 0);
	table = small_table();
	table.head.strings = UINT32_MAX;
	image_file_make(&file, span_of(&table, sizeof(table)), span_of(build_id, sizeof(build_id)),
			false);
	CHECK_EQUAL(file.size, 0);
}

/* A table of COUNT functions that share one name of SIZE bytes. */
static void make_shared(struct bytes *file, size_t count, size_t size)
{
	const struct agent_symbols head = { .section = AGENT_SYMBOLS_SYMTAB,
					    .symbols = (uint32_t)(count * sizeof(Elf64_Sym)),
					    .strings = (uint32_t)size + 2 };
	struct bytes table = { 0 };

	bytes_add(&table, &head, sizeof(head));
	for (size_t i = 0; i < count; i++) {
		const Elf64_Sym symbol = { .st_name = 1,
					   .st_info = STT_FUNC,
					   .st_shndx = 12,
					   .st_value = 16 * i,
					   .st_size = 16 };

		bytes_add(&table, &symbol, sizeof(symbol));
	}
	bytes_add_zeros(&table, size + 2);
	memset(table.data + table.size - size - 1, 'x', size);
	image_file_make(file, span_of(table.data, table.size), span_of(build_id, sizeof(build_id)),
			false);
	free(table.data);
}

/* A million symbols with a string of megabytes would take terabytes. */
TEST(image_file, is_empty_if_names_exceed_the_strings)
{
	struct bytes file;

	make_shared(&file, 1, IMAGE_FILE_NAME_MAX - 1);
	CHECK(file.size > IMAGE_FILE_NAME_MAX);
	free(file.data);
	make_shared(&file, 2, IMAGE_FILE_NAME_MAX - 1);
	CHECK(!file.failed);
	CHECK_EQUAL(file.size, 0);
	free(file.data);
}

TEST(image_file, leaves_out_long_names)
{
	struct bytes file;

	make_shared(&file, 1, IMAGE_FILE_NAME_MAX);
	CHECK_EQUAL(file.size, 0);
	free(file.data);
}
