/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings are those of the SDM vol. 2B, MOV - Move to/from Debug Registers; others: vol. 3B 18.2.
 */
#include "tests/unit/shim/test.h"
#include "vmm/debug/debug_move.h"

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
