/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/cfi_expression.h"

#include "vmm/guest/unwind/dwarf_cursor.h"

/* DW_OP_*: DWARF 5, table 7.9. */
enum {
	OP_DEREF = 0x06,
	OP_AND = 0x1a,
	OP_PLUS = 0x22,
	OP_PLUS_UCONST = 0x23,
	OP_SHL = 0x24,
	OP_GE = 0x2a,
	OP_LIT0 = 0x30,
	OP_LIT31 = 0x4f,
	OP_BREG0 = 0x70,
};

static bool is_at_end(const struct dwarf_cursor *cursor)
{
	return !cursor->failed && cursor->at == cursor->bytes.size;
}

static bool base_and_offset(struct dwarf_cursor *cursor, uint64_t *base, int64_t *offset)
{
	uint8_t operation = (uint8_t)dwarf_fixed(cursor, 1);

	*offset = dwarf_sleb128(cursor);
	*base = (uint64_t)operation - OP_BREG0;
	return !cursor->failed && operation >= OP_BREG0 && *base <= DWARF_RIP;
}

bool cfi_expression_address(struct span expression, uint64_t *base, int64_t *offset)
{
	struct dwarf_cursor cursor = { .bytes = expression };

	return base_and_offset(&cursor, base, offset) && is_at_end(&cursor);
}

/* Parses what follows OP_DEREF. */
static bool addend(struct dwarf_cursor *cursor, struct cfi_rule *rule)
{
	uint64_t value = 0;

	if (!is_at_end(cursor)) {
		if (dwarf_fixed(cursor, 1) != OP_PLUS_UCONST)
			return false;
		value = dwarf_uleb128(cursor);
	}
	rule->cfa = CFI_CFA_MEMORY;
	rule->cfa_addend = (int16_t)value;
	return is_at_end(cursor) && value <= INT16_MAX;
}

/* bfd/elfxx-x86.c, elf_x86_64_eh_frame_plt and similar: N is the end of the push in an entry. */
static bool plt(struct dwarf_cursor *cursor, struct cfi_rule *rule)
{
	static const uint8_t tail[] = { OP_GE, OP_LIT0 + 3, OP_SHL, OP_PLUS };
	struct span rest = dwarf_block(cursor, 4 + sizeof(tail));

	if (!is_at_end(cursor) || rest.data[0] || rest.data[1] != OP_LIT0 + 15 ||
	    rest.data[2] != OP_AND || rest.data[3] < OP_LIT0 || rest.data[3] > OP_LIT31 ||
	    memcmp(rest.data + 4, tail, sizeof(tail)) != 0)
		return false;
	rule->cfa = CFI_CFA_PLT;
	rule->cfa_addend = (int16_t)(rest.data[3] - OP_LIT0);
	return true;
}

bool cfi_expression_cfa(struct span expression, struct cfi_rule *rule)
{
	struct dwarf_cursor cursor = { .bytes = expression };
	uint64_t base;
	int64_t offset;

	if (!base_and_offset(&cursor, &base, &offset) || base >= DWARF_RIP ||
	    offset != (int32_t)offset)
		return false;
	rule->cfa_register = (uint8_t)base;
	rule->cfa_offset = (int32_t)offset;
	switch (dwarf_fixed(&cursor, 1)) {
	case OP_DEREF:
		return addend(&cursor, rule);
	case OP_BREG0 + DWARF_RIP:
		return plt(&cursor, rule);
	default:
		return false;
	}
}
