/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/debug/debug_skipped.h"

#include <string.h>

#define ESCAPE    0x0f
#define REPEAT    0xf3
#define REX       0x40
#define REX_MASK  0xf0
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
static uint8_t pass_prefixes(struct cursor *cursor)
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

static uint8_t register_of(uint8_t modrm)
{
	return modrm >> 3 & 7;
}

/* Skips the rest of a memory operand after MODRM: SDM vol. 2A 2.1.5. Not for 16-bit addresses. */
static void pass_memory(struct cursor *cursor, uint8_t modrm)
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

	pass_memory(cursor, modrm);
	return mode_of(modrm) == REGISTERS || register_of(modrm) == 7;
}

static bool is_skipped_behind_escape(struct cursor *cursor)
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
		pass_memory(cursor, next(cursor));
		return true;
	default:
		return false;
	}
}

static bool is_skipped(struct cursor *cursor)
{
	switch (pass_prefixes(cursor)) {
	case ESCAPE:
		return is_skipped_behind_escape(cursor);
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
