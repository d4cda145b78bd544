/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/debug/debug_move.h"

#define REX      0x40
#define REX_MASK 0xf0
#define REX_R    4 /* DR8 to DR15: #UD */
#define REX_B    1

/* SDM vol. 3A 2.5 */
#define CR4_DE 8

#define ESCAPE     0x0f
#define FROM_DEBUG 0x21
#define TO_DEBUG   0x23

/* SDM vol. 3B 18.2.4: bits 14 and 15 are 0; 11 and 13 have a meaning that is left to the
 * processor. */
#define DR7_NOT_PLAIN (~UINT64_C(0xffff07ff))

bool debug_move_decode(const uint8_t *code, size_t size, struct debug_move *move)
{
	uint8_t rex = 0;
	size_t at = 0;

	if (size && (code[0] & REX_MASK) == REX)
		rex = code[at++];
	if (size < at + 3 || rex & REX_R || code[at] != ESCAPE ||
	    (code[at + 1] != FROM_DEBUG && code[at + 1] != TO_DEBUG))
		return false;
	*move = (struct debug_move){ .length = (uint8_t)(at + 3),
				     .debug = code[at + 2] >> 3 & 7,
				     .general =
					     (uint8_t)((code[at + 2] & 7) | (rex & REX_B ? 8 : 0)),
				     .to_debug = code[at + 1] == TO_DEBUG };
	return true;
}

bool debug_move_is_undefined(const struct debug_move *move, uint64_t cr4)
{
	return cr4 & CR4_DE && (move->debug == 4 || move->debug == 5);
}

static bool is_canonical(uint64_t address)
{
	return address + (UINT64_C(1) << 47) < UINT64_C(1) << 48;
}

bool debug_move_write(const struct debug_move *move, uint64_t value, struct debug_registers *guest)
{
	switch (move->debug) {
	case 4:
	case 6:
		/* Which other bits can be 0 differs between processors. */
		if (value != DR6_NOTHING)
			return false;
		guest->dr6 = value;
		return true;
	case 5:
	case 7:
		if (value & DR7_NOT_PLAIN)
			return false;
		guest->dr7 = value | DR7_FIXED;
		return true;
	default:
		if (!is_canonical(value))
			return false;
		guest->address[move->debug] = value;
		return true;
	}
}

uint64_t debug_move_read(const struct debug_move *move, const struct debug_registers *guest)
{
	switch (move->debug) {
	case 4:
	case 6:
		return guest->dr6;
	case 5:
	case 7:
		return guest->dr7;
	default:
		return guest->address[move->debug];
	}
}
