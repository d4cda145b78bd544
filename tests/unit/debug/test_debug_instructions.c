/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings are those of the SDM vol. 2B, MOV - Move to/from Debug Registers; others: vol. 3B 18.2.
 */
#include "tests/unit/shim/test.h"
#include "vmm/debug/debug_instructions.h"

TEST(debug_move, encodings)
{
	static const struct {
		uint8_t code[DEBUG_MOVE_SIZE_MAX], size;
		bool is_move;
		struct debug_move move;
	} cases[] = {
		{ { 0x0f, 0x23, 0xf8 }, 3, true, { 3, 7, 0, true } },        /* mov dr7, rax */
		{ { 0x0f, 0x21, 0xf1 }, 3, true, { 3, 6, 1, false } },       /* mov rcx, dr6 */
		{ { 0x41, 0x0f, 0x23, 0xdf }, 4, true, { 4, 3, 15, true } }, /* mov dr3, r15 */
		{ { 0x48, 0x0f, 0x21, 0xc4 },
		  4,
		  true,
		  { 4, 0, 4, false } },                               /* mov rsp, dr0, REX.W */
		{ { 0x0f, 0x23, 0x0d }, 3, true, { 3, 1, 5, true } }, /* the mod field is ignored */
		{ { 0x44, 0x0f, 0x23, 0xf8 }, 4, false, { 0 } },      /* DR15 */
		{ { 0x0f, 0x21, 0xe0 }, 3, true, { 3, 4, 0, false } }, /* mov rax, dr4 */
		{ { 0x0f, 0x23, 0xe8 }, 3, true, { 3, 5, 0, true } },  /* mov dr5, rax */
		{ { 0x0f, 0x22, 0xd8 }, 3, false, { 0 } },             /* mov cr3, rax */
		{ { 0x66, 0x0f, 0x23, 0xf8 }, 4, false, { 0 } },       /* a prefix */
		{ { 0x0f, 0x23 }, 2, false, { 0 } },       /* the next page is not mapped */
		{ { 0x41, 0x0f, 0x23 }, 3, false, { 0 } }, /* the same */
		{ { 0 }, 0, false, { 0 } },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct debug_move move = { 0 };
		bool is_move = debug_move_decode(cases[i].code, cases[i].size, &move);

		if (is_move != cases[i].is_move)
			FAIL_TEST("case %zu", i);
		if (!is_move)
			continue;
		CHECK_EQUAL(move.length, cases[i].move.length);
		CHECK_EQUAL(move.debug, cases[i].move.debug);
		CHECK_EQUAL(move.general, cases[i].move.general);
		CHECK_EQUAL(move.to_debug, cases[i].move.to_debug);
	}
}

TEST(debug_move, only_plain_values_are_written)
{
	static const struct {
		uint8_t debug;
		uint64_t value;
		bool plain;
		uint64_t after;
	} cases[] = {
		{ 0, 0x7fffffffffff, true, 0x7fffffffffff },
		{ 1, 0xffff800000000000, true, 0xffff800000000000 },
		{ 2, 0x800000000000, false, 0 }, /* not canonical */
		{ 6, DR6_NOTHING, true, DR6_NOTHING },
		{ 6, 0, false, 0 },
		{ 6, DR6_NOTHING | DR6_BS, false, 0 },
		{ 4, DR6_NOTHING, true, DR6_NOTHING }, /* aliases of DR6 and DR7 */
		{ 4, 0, false, 0 },
		{ 5, 0xfff007ff, true, 0xfff007ff },
		{ 5, DR7_GD, false, 0 },
		{ 7, 0, true, DR7_FIXED }, /* bit 10 is always 1 */
		{ 7, 0xfff007ff, true, 0xfff007ff },
		{ 7, DR7_GD, false, 0 },
		{ 7, 0x800, false, 0 },
		{ 7, 0x8000, false, 0 },
		{ 7, 0x100000000, false, 0 }, /* #GP */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct debug_registers guest = { .dr6 = 0x1, .dr7 = 0x2 };
		struct debug_move move = { .debug = cases[i].debug, .to_debug = true };

		CHECK_EQUAL(debug_move_write(&move, cases[i].value, &guest), cases[i].plain);
		if (cases[i].plain)
			CHECK_EQUAL(debug_move_read(&move, &guest), cases[i].after);
		else
			CHECK(guest.dr6 == 0x1 && guest.dr7 == 0x2 && !guest.address[2]);
	}
}

TEST(debug_move, other_names_are_undefined_with_de)
{
	for (uint8_t debug = 0; debug < 8; debug++) {
		struct debug_move move = { .debug = debug };

		CHECK_EQUAL(debug_move_is_undefined(&move, 8), debug == 4 || debug == 5);
		CHECK(!debug_move_is_undefined(&move, ~UINT64_C(8)));
	}
}

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
