/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of this machine's own programs, compared row by row with libdw: each range of code with a
 * rule, and the gaps between them.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/guest/unwind/cfi_image.h"

static int read_file(void *context, uint64_t offset, void *to, size_t size)
{
	return pread(*(int *)context, to, size, (off_t)offset) == (ssize_t)size ? 0 : -1;
}

static bool is_deref(const Dwarf_Op *op)
{
	return op->atom == DW_OP_deref;
}

static bool is_based(const Dwarf_Op *op)
{
	return op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31;
}

static bool is_plt(const Dwarf_Op *ops, size_t count)
{
	return count == 8 && ops[1].atom == DW_OP_breg16 && !ops[1].number &&
	       ops[2].atom == DW_OP_lit15 && ops[3].atom == DW_OP_and && ops[5].atom == DW_OP_ge &&
	       ops[6].atom == DW_OP_lit3 && ops[7].atom == DW_OP_shl;
}

static bool expect_cfa(Dwarf_Frame *frame, struct cfi_rule *rule)
{
	Dwarf_Op *ops;
	size_t count;

	if (dwarf_frame_cfa(frame, &ops, &count) || !count)
		return false;
	if (ops[0].atom == DW_OP_bregx) { /* libdw's form of a plain one */
		rule->cfa = CFI_CFA_REGISTER;
		rule->cfa_register = (uint8_t)ops[0].number;
		rule->cfa_offset = (int32_t)ops[0].number2;
		return count == 1;
	}
	if (!is_based(&ops[0]))
		return false;
	rule->cfa_register = (uint8_t)(ops[0].atom - DW_OP_breg0);
	rule->cfa_offset = (int32_t)ops[0].number;
	if (count == 1) {
		rule->cfa = CFI_CFA_REGISTER;
		return true;
	}
	if (is_plt(ops, count - 1) && ops[count - 1].atom == DW_OP_plus) {
		rule->cfa = CFI_CFA_PLT;
		rule->cfa_addend = (int16_t)(ops[4].atom - DW_OP_lit0);
		return true;
	}
	rule->cfa = CFI_CFA_MEMORY;
	if (count == 3 && ops[2].atom == DW_OP_plus_uconst)
		rule->cfa_addend = (int16_t)ops[2].number;
	else if (count != 2)
		return false;
	return is_deref(&ops[1]);
}

/* False: a rule cannot express it. */
static bool expect_place(Dwarf_Frame *frame, int number, uint8_t *place, int16_t *offset)
{
	Dwarf_Op memory[3], *ops;
	size_t count;

	*offset = 0;
	if (dwarf_frame_register(frame, number, memory, &ops, &count))
		return false;
	if (!count) {
		*place = ops ? CFI_UNDEFINED : CFI_SAME;
		return true;
	}
	if (count == 1 && ops[0].atom == DW_OP_regx) {
		*place = CFI_REGISTER;
		*offset = (int16_t)ops[0].number;
		return true;
	}
	if (ops[0].atom != DW_OP_call_frame_cfa)
		return false;
	if (count == 1) {
		*place = CFI_AT_CFA;
		return true;
	}
	if (count == 2 && ops[1].atom == DW_OP_plus_uconst) {
		*place = CFI_AT_CFA;
		*offset = (int16_t)ops[1].number;
		return true;
	}
	if (count != 2 || (ops[1].atom != DW_OP_breg7 && ops[1].atom != DW_OP_breg6))
		return false;
	*place = ops[1].atom == DW_OP_breg7 ? CFI_AT_RSP : CFI_AT_RBP;
	*offset = (int16_t)ops[1].number;
	return true;
}

/* The CFA itself, or for signal frames, loaded from the same address. */
static bool expect_sp(Dwarf_Frame *frame, const struct cfi_rule *rule)
{
	Dwarf_Op memory[3], *ops;
	size_t count;

	if (dwarf_frame_register(frame, DWARF_RSP, memory, &ops, &count) || !count ||
	    ops[0].atom != DW_OP_call_frame_cfa)
		return false;
	if (count == 2 && ops[1].atom == DW_OP_stack_value)
		return true;
	return count == 2 && rule->cfa == CFI_CFA_MEMORY && !rule->cfa_addend &&
	       is_based(&ops[1]) && ops[1].atom - DW_OP_breg0 == rule->cfa_register &&
	       (int64_t)ops[1].number == rule->cfa_offset;
}

static void expect(Dwarf_Frame *frame, bool signal, struct cfi_rule *rule)
{
	*rule = (struct cfi_rule){ .signal = signal };
	if (!expect_place(frame, DWARF_RIP, &rule->ip, &rule->ip_offset) ||
	    !expect_cfa(frame, rule) || !expect_sp(frame, rule)) {
		*rule = (struct cfi_rule){ .cfa = CFI_CFA_UNKNOWN };
		return;
	}
	if (rule->ip == CFI_UNDEFINED)
		*rule = (struct cfi_rule){ .cfa = CFI_CFA_REGISTER,
					   .cfa_register = DWARF_RSP,
					   .ip = CFI_UNDEFINED };
	else {
		if (!expect_place(frame, DWARF_RBP, &rule->bp, &rule->bp_offset))
			rule->bp = CFI_UNDEFINED;
		if (!expect_place(frame, DWARF_RBX, &rule->bx, &rule->bx_offset))
			rule->bx = CFI_UNDEFINED;
		else if (rule->bx == CFI_UNDEFINED) /* libdw's ABI rules take 0 for RBX:
						       backends/x86_64_cfi.c */
			rule->bx = CFI_SAME;
	}
}

static void print_rule(const char *what, const struct cfi_rule *rule)
{
	printf("  %s: cfa %u r%u%+d %+d, bp %u %+d, bx %u %+d, ip %u %+d, signal %u\n", what,
	       rule->cfa, rule->cfa_register, rule->cfa_offset, rule->cfa_addend, rule->bp,
	       rule->bp_offset, rule->bx, rule->bx_offset, rule->ip, rule->ip_offset, rule->signal);
}

struct comparison {
	Dwarf_CFI *cfi;
	const struct cfi_table *table;
	uint64_t rows, gaps, unknown, wrong;
	uint64_t by[DWARF_RIP]; /* rows by the register of their CFA */
};

static void compare_row(struct comparison *comparison, uint64_t address, uint64_t offset,
			const struct cfi_rule *expected)
{
	const struct cfi_rule *found = cfi_table_find(comparison->table, offset);

	if (!memcmp(found, expected, sizeof(*found)))
		return;
	if (comparison->wrong++ < 10) {
		printf("at %#llx:\n", (unsigned long long)address);
		print_rule("libdw", expected);
		print_rule("table", found);
	}
}

/* The rule at ADDRESS, and where it ends. */
static uint64_t compare_at(struct comparison *comparison, uint64_t address, uint64_t delta)
{
	struct cfi_rule expected = { .cfa = CFI_CFA_NONE };
	Dwarf_Addr start, end = address + 1;
	Dwarf_Frame *frame;
	bool signal;

	if (dwarf_cfi_addrframe(comparison->cfi, address, &frame)) {
		comparison->gaps++;
		compare_row(comparison, address, address + delta, &expected);
		return end;
	}
	dwarf_frame_info(frame, &start, &end, &signal);
	expect(frame, signal, &expected);
	comparison->rows++;
	comparison->unknown += expected.cfa == CFI_CFA_UNKNOWN;
	comparison->by[expected.cfa_register]++;
	compare_row(comparison, address, address + delta, &expected);
	compare_row(comparison, end - 1, end - 1 + delta, &expected);
	free(frame);
	return end > address ? end : address + 1;
}

static void compare_code(struct comparison *comparison, Elf *elf)
{
	size_t count = 0;
	GElf_Phdr segment;

	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count; i++) {
		if (!gelf_getphdr(elf, (int)i, &segment) || segment.p_type != PT_LOAD ||
		    !(segment.p_flags & PF_X))
			continue;
		for (uint64_t at = segment.p_vaddr; at < segment.p_vaddr + segment.p_filesz;)
			at = compare_at(comparison, at, segment.p_offset - segment.p_vaddr);
	}
}

static void compare_image(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_source source = { .read = read_file, .context = &file };
	struct comparison comparison = { 0 };
	struct cfi_table *table;
	Elf *elf;

	REQUIRE(file >= 0);
	elf_version(EV_CURRENT);
	elf = elf_begin(file, ELF_C_READ_MMAP, NULL);
	comparison.cfi = dwarf_getcfi_elf(elf);
	REQUIRE(comparison.cfi);
	REQUIRE_EQUAL(cfi_image_compile(&table, &source), 0);
	comparison.table = table;
	compare_code(&comparison, elf);
	printf("%s: %llu rules of libdw, %llu that the table has not; %u rows, %u rules, %zu bytes; CFA in",
	       path, (unsigned long long)comparison.rows, (unsigned long long)comparison.unknown,
	       table->count, table->rule_count, cfi_table_size(table));
	for (unsigned int i = 0; i < DWARF_RIP; i++)
		if (comparison.by[i])
			printf(" r%u %llu", i, (unsigned long long)comparison.by[i]);
	printf("\n");
	CHECK(comparison.rows > 100);
	CHECK_EQUAL(comparison.wrong, 0);
	/* Unsupported rules, which end chains: assembly code. */
	CHECK(comparison.unknown * 1000 <= comparison.rows);
	cfi_table_free(table);
	dwarf_cfi_end(comparison.cfi);
	elf_end(elf);
	close(file);
}

static void compare_images(const char *pattern)
{
	glob_t found;

	if (glob(pattern, 0, NULL, &found) || !found.gl_pathc) {
		SKIP("no %s on this machine", pattern);
	}
	compare_image(found.gl_pathv[0]);
	globfree(&found);
}

TEST(eh_frame_images, c_library)
{
	compare_images("/lib/x86_64-linux-gnu/libc.so.6");
}

TEST(eh_frame_images, dynamic_linker)
{
	compare_images("/lib64/ld-linux-x86-64.so.2");
}

TEST(eh_frame_images, cpp_library)
{
	compare_images("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
}

/* Hand-written code that keeps its caller's stack pointer in memory. */
TEST(eh_frame_images, crypto_library)
{
	compare_images("/usr/lib/x86_64-linux-gnu/libcrypto.so.*");
}

TEST(eh_frame_images, perf)
{
	compare_images("/usr/bin/perf");
}

/* It has no .eh_frame_hdr. */
TEST(eh_frame_images, static_program)
{
	compare_images("/bin/busybox");
}

TEST(eh_frame_images, this_program)
{
	compare_images("/proc/self/exe");
}

/* Too large for each run: KVMSCOPE_TEST_IMAGE names any other. */
TEST(eh_frame_images, named_by_the_environment)
{
	const char *path = getenv("KVMSCOPE_TEST_IMAGE");

	if (!path) {
		SKIP("KVMSCOPE_TEST_IMAGE is not set");
	}
	compare_images(path);
}
