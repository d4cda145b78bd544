/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/bytes_read.h"
#include "tests/unit/shim/test.h"
#include "vmm/symbols/elf_symbols.h"

/* The test program itself is an ELF file with known symbols. */
static const char self[] = "/proc/self/exe";

/* The address at which the kernel mapped the file's byte of ADDRESS. */
static uint64_t offset_in_file(const void *address)
{
	unsigned long start, end, offset;
	uint64_t found = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 &&
		    (uintptr_t)address >= start && (uintptr_t)address < end)
			found = (uintptr_t)address - start + offset;
	if (maps)
		fclose(maps);
	return found;
}

TEST(elf_symbols, finds_a_function_by_its_offset_in_the_file)
{
	struct symbols *symbols;
	struct symbol symbol;

	REQUIRE_EQUAL(elf_symbols_load(&symbols, self, ELF_FILE_OFFSETS, (struct span){ 0 }), 0);
	REQUIRE(symbols_find(symbols, offset_in_file((const void *)elf_symbols_load) + 4, &symbol));
	CHECK_STRING(symbol.name, "elf_symbols_load");
	CHECK_EQUAL(symbol.start, offset_in_file((const void *)elf_symbols_load));
	symbols_free(symbols);
}

/* An assembly symbol without a size in a section of some bytes, followed by PLT stubs. */
void _init(void);

TEST(elf_symbols, ends_a_symbol_without_a_size_with_its_section)
{
	uint64_t start = offset_in_file((const void *)_init);
	struct symbols *symbols;
	struct symbol symbol;

	REQUIRE_EQUAL(elf_symbols_load(&symbols, self, ELF_FILE_OFFSETS, (struct span){ 0 }), 0);
	REQUIRE(symbols_find(symbols, start, &symbol));
	CHECK_STRING(symbol.name, "_init");
	CHECK(symbol.end - symbol.start < 64);
	CHECK(!symbols_find(symbols, symbol.end, &symbol) || strcmp(symbol.name, "_init") != 0);
	symbols_free(symbols);
}

__asm__(".globl elf_symbols_test_value\n.set elf_symbols_test_value, 0x40\n");

TEST(elf_symbols, leaves_out_absolute_symbols)
{
	struct symbols *symbols;
	struct symbol symbol;

	REQUIRE_EQUAL(elf_symbols_load(&symbols, self, ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }),
		      0);
	CHECK(symbols_find_name(symbols, "elf_symbols_load", &symbol));
	CHECK(!symbols_find_name(symbols, "elf_symbols_test_value", &symbol));
	symbols_free(symbols);
}

TEST(elf_symbols, loads_only_the_requested_build)
{
	uint8_t build_id[ELF_BUILD_ID_MAX];
	struct symbols *symbols;
	int size = elf_build_id(self, build_id);

	if (!size)
		SKIP("this compiler puts no build id into programs");
	REQUIRE(size > 0);
	REQUIRE_EQUAL(
		elf_symbols_load(&symbols, self, ELF_FILE_OFFSETS, span_of(build_id, (size_t)size)),
		0);
	symbols_free(symbols);
	build_id[size - 1] ^= 1;
	CHECK_EQUAL(
		elf_symbols_load(&symbols, self, ELF_FILE_OFFSETS, span_of(build_id, (size_t)size)),
		-ESTALE);
	CHECK(strstr(error_message(), "build id"));
}

TEST(elf_symbols, refuses_other_files)
{
	uint8_t build_id[ELF_BUILD_ID_MAX];
	struct symbols *symbols;

	CHECK_EQUAL(elf_symbols_load(&symbols, "Makefile", ELF_FILE_OFFSETS, (struct span){ 0 }),
		    -EINVAL);
	CHECK_EQUAL(elf_symbols_load(&symbols, "build/no-such-file", ELF_FILE_OFFSETS,
				     (struct span){ 0 }),
		    -ENOENT);
	CHECK_EQUAL(elf_build_id("Makefile", build_id), -EINVAL);
	CHECK_EQUAL(elf_build_id("/dev/zero", build_id), -EINVAL);
}

/* Copies the first SIZE bytes of FROM to TO. */
static bool copy_part(const char *from, const char *to, size_t size)
{
	char *bytes = malloc(size);
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ssize_t count = bytes && in >= 0 ? read(in, bytes, size) : -1;
	bool done = count > 0 && out >= 0 && write(out, bytes, (size_t)count) == count;

	free(bytes);
	close(in);
	close(out);
	return done;
}

TEST(elf_symbols, survives_truncated_files)
{
	static const size_t sizes[] = { 1, 16, 63, 64, 500, 4096, 100000, 400000 };
	char path[] = "build/elf-XXXXXX";
	struct symbols *symbols;
	int fd = mkstemp(path);

	REQUIRE(fd >= 0);
	close(fd);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		REQUIRE(copy_part(self, path, sizes[i]));
		/* The section headers are at the end: without them there are no symbols. */
		CHECK(elf_symbols_load(&symbols, path, ELF_FILE_OFFSETS, (struct span){ 0 }) < 0);
	}
	unlink(path);
}

/* Writes a sparse file whose only symbols are a section of SYMBOLS bytes, with names in another of
 * STRINGS bytes. */
static void write_sparse(const char *path, uint64_t symbols, uint64_t strings)
{
	const uint64_t start = 4096;
	const Elf64_Ehdr header = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_shoff = sizeof(header),
		.e_ehsize = sizeof(header),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = 3,
	};
	const Elf64_Shdr sections[3] = {
		{ 0 },
		{ .sh_type = SHT_SYMTAB,
		  .sh_offset = start,
		  .sh_size = symbols,
		  .sh_link = 2,
		  .sh_entsize = sizeof(Elf64_Sym) },
		{ .sh_type = SHT_STRTAB, .sh_offset = start + symbols, .sh_size = strings },
	};
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	REQUIRE(fd >= 0);
	CHECK_EQUAL(write(fd, &header, sizeof(header)), sizeof(header));
	CHECK_EQUAL(write(fd, sections, sizeof(sections)), sizeof(sections));
	CHECK_EQUAL(ftruncate(fd, (off_t)(start + symbols + strings)), 0);
	close(fd);
}

TEST(elf_symbols, leaves_out_sections_that_no_program_has)
{
	static const uint64_t sizes[][2] = { { 6ull << 30, 4096 }, { 4080, 6ull << 30 } };
	const char *const path = "build/elf-sparse";
	uint64_t begin = bytes_read();
	struct symbols *symbols;

	if (!begin)
		SKIP("no /proc/thread-self/io");
	for (size_t i = 0; i < 2; i++) {
		write_sparse(path, sizes[i][0], sizes[i][1]);
		CHECK_EQUAL(
			elf_symbols_load(&symbols, path, ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }),
			-EFBIG);
		CHECK_STRING(error_message(),
			     "build/elf-sparse has a symbol table that is too large");
	}
	CHECK(bytes_read() - begin < (1 << 20));
	unlink(path);
}
