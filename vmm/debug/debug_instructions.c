/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/debug/debug_instructions.h"

#include <string.h>

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

#define REPEAT    0xf3
#define REGISTERS 3 /* of ModRM.mod */

struct cursor {
	const uint8_t *code;
	size_t size, at;
	bool long_mode, repeats;
};

/* Returns 0, which is none of these opcodes, after the end. */
static uint8_t next(struct cursor *cursor)
{
	size_t at = cursor->at++;

	return at < cursor->size ? cursor->code[at] : 0;
}

/* SDM vol. 2A 2.1.1 and 2.2.1 */
static uint8_t skip_prefixes(struct cursor *cursor)
{
	static const char prefixes[] = "\x66\x67\xf2\xf3\x2e\x36\x3e\x26\x64\x65";
	uint8_t byte = next(cursor);

	while (byte && strchr(prefixes, byte)) {
		cursor->repeats |= byte == REPEAT;
		byte = next(cursor);
	}
	return cursor->long_mode && (byte & REX_MASK) == REX ? next(cursor) : byte;
}

static uint8_t mode_of(uint8_t modrm)
{
	return modrm >> 6;
}

/* Skips the rest of a memory operand after MODRM: SDM vol. 2A 2.1.5. Not for 16-bit addresses. */
static void skip_memory(struct cursor *cursor, uint8_t modrm)
{
	static const uint8_t displacements[REGISTERS + 1] = { 0, 1, 4, 0 };
	uint8_t mode = mode_of(modrm), base = modrm & 7;

	if (mode != REGISTERS && base == 4)
		base = next(cursor) & 7;
	cursor->at += mode == 0 && base == 5 ? 4 : displacements[mode];
}

/* INVLPG, and instructions without memory operand: VMCALL, MONITOR, MWAIT, XSETBV, RDTSCP, ... */
static bool is_skipped_of_group_7(struct cursor *cursor)
{
	uint8_t modrm = next(cursor);

	skip_memory(cursor, modrm);
	return mode_of(modrm) == REGISTERS || (modrm >> 3 & 7) == 7;
}

static bool is_skipped_after_escape(struct cursor *cursor)
{
	switch (next(cursor)) {
	case 0x01:
		return is_skipped_of_group_7(cursor);
	case 0x06: /* CLTS */
	case 0x08: /* INVD */
	case 0x09: /* WBINVD */
	case 0x30: /* WRMSR */
	case 0x31: /* RDTSC */
	case 0x32: /* RDMSR */
	case 0x33: /* RDPMC */
	case 0xa2: /* CPUID */
		return true;
	case 0x20: /* MOV to and from control and debug registers */
	case 0x21:
	case 0x22:
	case 0x23:
		next(cursor);
		return true;
	case 0x38: /* INVPCID */
		if (next(cursor) != 0x82)
			return false;
		skip_memory(cursor, next(cursor));
		return true;
	default:
		return false;
	}
}

static bool is_skipped(struct cursor *cursor)
{
	switch (skip_prefixes(cursor)) {
	case ESCAPE:
		return is_skipped_after_escape(cursor);
	case 0x90: /* PAUSE */
		return cursor->repeats;
	case 0xe4: /* IN and OUT */
	case 0xe5:
	case 0xe6:
	case 0xe7:
		next(cursor);
		return true;
	case 0xec:
	case 0xed:
	case 0xee:
	case 0xef:
	case 0xf4: /* HLT */
		return true;
	default:
		return false;
	}
}

size_t debug_skipped_length(const uint8_t *code, size_t size, bool long_mode)
{
	struct cursor cursor = { .code = code, .size = size, .long_mode = long_mode };

	return is_skipped(&cursor) && cursor.at <= size ? cursor.at : 0;
}
