/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/debug/debug_skipped.h"

#include <string.h>

#include "tests/unit/shim/test.h"

/* Bytes of instructions, as assembled. */
struct instruction {
	const char *is;
	size_t length; /* the expected length; 0: not skipped */
	uint8_t code[DEBUG_SKIPPED_SIZE_MAX];
};

static const struct instruction instructions[] = {
	{ "cpuid", 2, { 0x0f, 0xa2 } },
	{ "hlt", 1, { 0xf4 } },
	{ "wrmsr", 2, { 0x0f, 0x30 } },
	{ "out %al, $0x80", 2, { 0xe6, 0x80 } },
	{ "out %ax, %dx", 2, { 0x66, 0xef } },
	{ "in %dx, %eax", 1, { 0xed } },
	{ "pause", 2, { 0xf3, 0x90 } },
	{ "mov %rax, %cr3", 3, { 0x0f, 0x22, 0xd8 } },
	{ "mov %r8, %cr0", 4, { 0x41, 0x0f, 0x22, 0xc0 } },
	{ "mov %db7, %rax", 3, { 0x0f, 0x21, 0xf8 } },
	{ "xsetbv", 3, { 0x0f, 0x01, 0xd1 } },
	{ "invlpg (%rax)", 3, { 0x0f, 0x01, 0x38 } },
	{ "invlpg 0x10(%rsp)", 5, { 0x0f, 0x01, 0x7c, 0x24, 0x10 } },
	{ "invlpg 0x1000(%rax,%rbx)", 8, { 0x0f, 0x01, 0xbc, 0x18, 0, 0x10, 0, 0 } },
	{ "invlpg 0(%rip)", 7, { 0x0f, 0x01, 0x3d } },
	{ "invlpg 0x1000(,%rax,8)", 8, { 0x0f, 0x01, 0x3c, 0xc5, 0, 0x10 } },
	{ "invlpg (%r15)", 4, { 0x41, 0x0f, 0x01, 0x3f } },
	{ "invpcid (%rdi), %rax", 5, { 0x66, 0x0f, 0x38, 0x82, 0x07 } },
	{ "nop", 0, { 0x90 } },
	{ "rep outsb", 0, { 0xf3, 0x6e } },
	{ "lgdt (%rax)", 0, { 0x0f, 0x01, 0x10 } },
	{ "syscall", 0, { 0x0f, 0x05 } },
	{ "pushfq", 0, { 0x9c } },
	{ "mov %rax, (%rbx)", 0, { 0x48, 0x89, 0x03 } },
	{ "pshufb (%rdi), %mm0", 0, { 0x0f, 0x38, 0x00, 0x07 } },
};

TEST(debug_skipped, lengths_are_those_of_the_instructions)
{
	for (size_t i = 0; i < sizeof(instructions) / sizeof(instructions[0]); i++) {
		const struct instruction *one = &instructions[i];
		size_t length = debug_skipped_length(one->code, sizeof(one->code), true);

		if (length != one->length)
			FAIL_TEST("%s has %zu bytes, not %zu", one->is, length, one->length);
	}
}

TEST(debug_skipped, truncated_instructions_have_no_length)
{
	for (size_t i = 0; i < sizeof(instructions) / sizeof(instructions[0]); i++)
		for (size_t size = 0; size < instructions[i].length; size++)
			CHECK_EQUAL(debug_skipped_length(instructions[i].code, size, true), 0);
}

/* inc %eax; cpuid */
TEST(debug_skipped, there_is_no_rex_outside_of_64_bit_mode)
{
	static const uint8_t code[] = { 0x40, 0x0f, 0xa2 };

	CHECK_EQUAL(debug_skipped_length(code, sizeof(code), false), 0);
	CHECK_EQUAL(debug_skipped_length(code, sizeof(code), true), 3);
}
