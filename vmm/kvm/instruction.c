/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/instruction.h"

#include <stdbool.h>
#include <string.h>

#define ANY (-1)

enum prefix { PREFIX_NONE, PREFIX_66, PREFIX_F2, PREFIX_F3 };

/*
 * OPCODE follows 0x0f unless one_byte is set. Unless it is PREFIX_NONE, PREFIX must be present.
 * MODRM is the whole byte; REG is its middle field, and MEMORY selects a memory or a register
 * operand (SDM vol. 2, app. A).
 */
struct pattern {
	const char *name;
	enum prefix prefix;
	int modrm, reg;
	uint8_t opcode;
	bool one_byte;
	bool memory;
};

static const struct pattern patterns[] = {
	{ "FWAIT", PREFIX_NONE, ANY, ANY, 0x9b, true, false },
	{ "INT", PREFIX_NONE, ANY, ANY, 0xcd, true, false },
	{ "STAC", PREFIX_NONE, 0xcb, ANY, 0x01, false, false },
	{ "CLAC", PREFIX_NONE, 0xca, ANY, 0x01, false, false },
	{ "XGETBV", PREFIX_NONE, 0xd0, ANY, 0x01, false, false },
	{ "SWAPGS", PREFIX_NONE, 0xf8, ANY, 0x01, false, false },
	{ "RDTSCP", PREFIX_NONE, 0xf9, ANY, 0x01, false, false },
	{ "VERW", PREFIX_NONE, ANY, 5, 0x00, false, false },
	{ "VERW", PREFIX_NONE, ANY, 5, 0x00, false, true },
	{ "XSAVE", PREFIX_NONE, ANY, 4, 0xae, false, true },
	{ "XRSTOR", PREFIX_NONE, ANY, 5, 0xae, false, true },
	{ "XSAVEOPT", PREFIX_NONE, ANY, 6, 0xae, false, true },
	{ "RDFSBASE", PREFIX_F3, ANY, 0, 0xae, false, false },
	{ "RDGSBASE", PREFIX_F3, ANY, 1, 0xae, false, false },
	{ "WRFSBASE", PREFIX_F3, ANY, 2, 0xae, false, false },
	{ "WRGSBASE", PREFIX_F3, ANY, 3, 0xae, false, false },
	{ "CMPXCHG16B", PREFIX_NONE, ANY, 1, 0xc7, false, true },
	{ "XRSTORS", PREFIX_NONE, ANY, 3, 0xc7, false, true },
	{ "XSAVEC", PREFIX_NONE, ANY, 4, 0xc7, false, true },
	{ "XSAVES", PREFIX_NONE, ANY, 5, 0xc7, false, true },
	{ "RDRAND", PREFIX_NONE, ANY, 6, 0xc7, false, false },
	{ "RDSEED", PREFIX_NONE, ANY, 7, 0xc7, false, false },
	{ "POPCNT", PREFIX_F3, ANY, ANY, 0xb8, false, false },
	{ "TZCNT", PREFIX_F3, ANY, ANY, 0xbc, false, false },
	{ "LZCNT", PREFIX_F3, ANY, ANY, 0xbd, false, false },
	{ "ENDBR", PREFIX_F3, 0xfa, ANY, 0x1e, false, false },
};

static bool is_legacy_prefix(uint8_t byte)
{
	return byte && strchr("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3", byte);
}

static enum prefix prefix_of(uint8_t byte, enum prefix before)
{
	if (byte == 0xf2 || byte == 0xf3)
		return byte == 0xf2 ? PREFIX_F2 : PREFIX_F3;
	return byte == 0x66 && before == PREFIX_NONE ? PREFIX_66 : before;
}

static bool matches(const struct pattern *pattern, bool one_byte, uint8_t opcode,
		    enum prefix prefix, int modrm)
{
	if (pattern->one_byte != one_byte || pattern->opcode != opcode)
		return false;
	if (pattern->prefix != PREFIX_NONE && pattern->prefix != prefix)
		return false;
	if (pattern->modrm != ANY)
		return modrm == pattern->modrm;
	if (pattern->reg != ANY)
		return modrm >= 0 && (modrm >> 3 & 7) == pattern->reg &&
		       pattern->memory == (modrm >> 6 != 3);
	return true;
}

const char *instruction_name(const uint8_t *bytes, size_t size)
{
	enum prefix prefix = PREFIX_NONE;
	bool one_byte = true;
	size_t at = 0;
	int modrm;

	while (at < size && is_legacy_prefix(bytes[at]))
		prefix = prefix_of(bytes[at++], prefix);
	if (at < size && (bytes[at] & 0xf0) == 0x40) /* REX */
		at++;
	if (at < size && bytes[at] == 0x0f) {
		one_byte = false;
		at++;
	}
	if (at >= size)
		return NULL;
	if (one_byte && (bytes[at] == 0xc4 || bytes[at] == 0xc5))
		return "VEX-encoded instructions (AVX, BMI)";
	modrm = at + 1 < size ? bytes[at + 1] : ANY;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
		if (matches(&patterns[i], one_byte, bytes[at], prefix, modrm))
			return patterns[i].name;
	return NULL;
}
