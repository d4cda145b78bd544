/* SPDX-License-Identifier: Apache-2.0 */
/* Inlined functions of compiled programs (tests/unit/inlines), compared with LLVM's symbolizer. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/symbols/dwarf_inlines.h"
#include "vmm/symbols/elf_file.h"
#include "vmm/symbols/symbol_paths.h"

static const struct symbol_sources nowhere; /* only the default places */

struct text {
	uint64_t start, size;
};

/* The range of a program's own code. */
static struct text text_of(const char *path)
{
	struct text text = { 0 };
	struct elf_file file;
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	size_t names;

	if (elf_file_open(&file, path)) {
		FAIL_TEST("%s", error_message());
		return text;
	}
	elf_getshdrstrndx(file.elf, &names);
	while ((section = elf_nextscn(file.elf, section)))
		if (gelf_getshdr(section, &header) &&
		    !strcmp(elf_strptr(file.elf, names, header.sh_name), ".text"))
			text = (struct text){ header.sh_addr, header.sh_size };
	elf_file_close(&file);
	CHECK(text.size);
	return text;
}

/* The output of LLVM's symbolizer for each byte: an address, then function and position in turn. */
static FILE *ask_llvm(const char *path, struct text text)
{
	char addresses[] = "/tmp/kvmscope-inlines-XXXXXX", command[512];
	FILE *to = fdopen(mkstemp(addresses), "w");
	FILE *from;

	for (uint64_t i = 0; i < text.size; i++)
		fprintf(to, "0x%" PRIx64 "\n", text.start + i);
	fclose(to);
	snprintf(
		command, sizeof(command),
		"llvm-symbolizer --inlines --no-demangle --output-style=GNU -a -f -e %s < %s; rm %s",
		path, addresses, addresses);
	from = popen(command, "r");
	return from;
}

static bool next_line(FILE *from, char *line, size_t size)
{
	if (!fgets(line, (int)size, from))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

/* "FILE:LINE", possibly with more after it. */
static bool is_same_place(const char *theirs, const struct dwarf_function *ours)
{
	const char *colon = strrchr(theirs, ':'), *name = strrchr(theirs, '/');
	const char *own = ours->file ? strrchr(ours->file, '/') : NULL;
	const char *file = own ? own + 1 : ours->file ? ours->file : "??";

	name = name ? name + 1 : theirs;
	return colon && strtoul(colon + 1, NULL, 10) == ours->line &&
	       strlen(file) == (size_t)(colon - name) && !strncmp(file, name, strlen(file));
}

/* The inlined functions, and the positions of these and of their callers. */
static unsigned int compare(FILE *from, uint64_t address, const struct dwarf_function *functions,
			    size_t count, char *line, size_t size)
{
	unsigned int wrong = 0, depth = 0;

	for (; next_line(from, line, size) && strncmp(line, "0x", 2); depth++) {
		bool inlined = depth + 1 < count;

		if (inlined &&
		    strcmp(line, functions[depth].name ? functions[depth].name : "") != 0)
			wrong++;
		if (!next_line(from, line, size) ||
		    (depth < count && !is_same_place(line, &functions[depth])))
			wrong++;
	}
	/* Between functions LLVM answers from the symbol table. */
	wrong += depth != (count ? count : 1);
	if (wrong)
		printf("%#" PRIx64 ": %u of %u differ, %zu here\n", address, wrong, depth, count);
	return wrong;
}

static void check_program(const char *path)
{
	struct dwarf_function functions[DWARF_INLINES_MAX];
	struct text text = text_of(path);
	FILE *from = ask_llvm(path, text);
	unsigned int wrong = 0, inlined = 0;
	struct dwarf_inlines *inlines;
	char line[4096];

	REQUIRE_EQUAL(dwarf_inlines_open(&inlines, path, (struct span){ 0 }, &nowhere), 0);
	REQUIRE(next_line(from, line, sizeof(line)));
	for (uint64_t i = 0; i < text.size && wrong < 10; i++) {
		size_t count = dwarf_inlines_find(inlines, text.start + i, true, functions);

		REQUIRE_EQUAL(strtoull(line, NULL, 16), text.start + i);
		wrong += compare(from, text.start + i, functions, count, line, sizeof(line));
		inlined += count > 1;
	}
	CHECK_EQUAL(wrong, 0);
	CHECK(inlined > text.size / 2);
	pclose(from);
	dwarf_inlines_close(inlines);
}

TEST(dwarf_inlines, of_gcc_match_llvm)
{
	check_program("build/inlines/gcc");
}

TEST(dwarf_inlines, of_compressed_dwarf_4_match_llvm)
{
	check_program("build/inlines/dwarf4");
}

TEST(dwarf_inlines, of_clang_match_llvm)
{
	check_program("build/inlines/clang");
}

static bool is_same(const struct dwarf_function *a, const struct dwarf_function *b)
{
	return a->line == b->line && !a->name == !b->name &&
	       (!a->name || !strcmp(a->name, b->name)) && !a->file == !b->file &&
	       (!a->file || !strcmp(a->file, b->file));
}

/* This version of LLVM's symbolizer cannot read such files; dwz only moves their content. */
TEST(dwarf_inlines, are_found_with_a_shared_file_of_dwz)
{
	struct dwarf_function functions[DWARF_INLINES_MAX], shared[DWARF_INLINES_MAX];
	struct text text = text_of("build/inlines/gcc");
	struct dwarf_inlines *whole, *parts;
	unsigned int different = 0;

	REQUIRE_EQUAL(dwarf_inlines_open(&whole, "build/inlines/gcc", (struct span){ 0 }, &nowhere),
		      0);
	REQUIRE_EQUAL(dwarf_inlines_open(&parts, "build/inlines/dwz", (struct span){ 0 }, &nowhere),
		      0);
	for (uint64_t i = 0; i < text.size; i++) {
		size_t count = dwarf_inlines_find(whole, text.start + i, true, functions);

		different += dwarf_inlines_find(parts, text.start + i, true, shared) != count;
		for (size_t j = 0; j < count; j++)
			different += !is_same(&functions[j], &shared[j]);
	}
	CHECK_EQUAL(different, 0);
	dwarf_inlines_close(whole);
	dwarf_inlines_close(parts);
}

TEST(dwarf_inlines, report_missing_dwarf)
{
	uint8_t build_id[ELF_BUILD_ID_MAX];
	struct dwarf_inlines *inlines;
	struct elf_file file;
	size_t size;

	CHECK_EQUAL(dwarf_inlines_open(&inlines, "build/inlines/stripped", (struct span){ 0 },
				       &nowhere),
		    -ENODATA);
	CHECK_EQUAL(dwarf_inlines_open(&inlines, "Makefile", (struct span){ 0 }, &nowhere),
		    -EINVAL);
	CHECK_EQUAL(
		dwarf_inlines_open(&inlines, "build/no-such-file", (struct span){ 0 }, &nowhere),
		-ENOENT);
	REQUIRE_EQUAL(elf_file_open(&file, "build/inlines/gcc"), 0);
	size = elf_file_build_id(&file, build_id);
	elf_file_close(&file);
	REQUIRE(size);
	REQUIRE_EQUAL(dwarf_inlines_open(&inlines, "build/inlines/stripped.debug",
					 span_of(build_id, size), &nowhere),
		      0);
	dwarf_inlines_close(inlines);
	build_id[0] ^= 1;
	CHECK_EQUAL(dwarf_inlines_open(&inlines, "build/inlines/stripped.debug",
				       span_of(build_id, size), &nowhere),
		    -ESTALE);
}
