/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/dwarf_cursor.h"

/* 64 bits need ten bytes; some writers pad. Bounds the time for one number. */
#define LEB128_MAX 16

uint64_t dwarf_fixed(struct dwarf_cursor *cursor, unsigned int width)
{
	uint64_t value = 0;

	if (cursor->failed || !span_copy(cursor->bytes, cursor->at, &value, width)) {
		cursor->failed = true;
		return 0;
	}
	cursor->at += width;
	return value;
}

/* Both kinds, without sign extension; *BITS is the number of encoded bits. */
static uint64_t leb128(struct dwarf_cursor *cursor, unsigned int *bits, bool *negative)
{
	uint64_t value = 0, begin = cursor->at;
	uint8_t byte;

	*bits = 0;
	do {
		if (cursor->at - begin == LEB128_MAX)
			cursor->failed = true;
		byte = (uint8_t)dwarf_fixed(cursor, 1);
		if (*bits < 64) {
			value |= (uint64_t)(byte & 0x7f) << *bits;
			*bits += 7;
		}
	} while (byte & 0x80);
	*negative = byte & 0x40;
	return value;
}

uint64_t dwarf_uleb128(struct dwarf_cursor *cursor)
{
	unsigned int bits;
	bool negative;

	return leb128(cursor, &bits, &negative);
}

int64_t dwarf_sleb128(struct dwarf_cursor *cursor)
{
	unsigned int bits;
	bool negative;
	uint64_t value = leb128(cursor, &bits, &negative);

	if (negative && bits < 64)
		value |= ~0ull << bits;
	return (int64_t)value;
}

static uint64_t sign_extended(uint64_t value, unsigned int bits)
{
	uint64_t sign = 1ull << (bits - 1);

	return (value ^ sign) - sign;
}

static uint64_t unbased(struct dwarf_cursor *cursor, uint8_t format)
{
	switch (format) {
	case 0x0: /* DW_EH_PE_absptr */
	case 0x4: /* udata8 */
	case 0x8: /* signed absptr */
	case 0xc: /* sdata8 */
		return dwarf_fixed(cursor, 8);
	case 0x1:
		return dwarf_uleb128(cursor);
	case 0x2:
		return dwarf_fixed(cursor, 2);
	case 0x3:
		return dwarf_fixed(cursor, 4);
	case 0x9:
		return (uint64_t)dwarf_sleb128(cursor);
	case 0xa:
		return sign_extended(dwarf_fixed(cursor, 2), 16);
	case 0xb:
		return sign_extended(dwarf_fixed(cursor, 4), 32);
	default:
		cursor->failed = true;
		return 0;
	}
}

uint64_t dwarf_pointer(struct dwarf_cursor *cursor, uint8_t encoding, uint64_t data)
{
	uint64_t here = cursor->address + cursor->at;

	if (encoding & POINTER_INDIRECT)
		cursor->failed = true;
	switch (encoding & POINTER_BASE) {
	case 0x00:
		return unbased(cursor, encoding & POINTER_FORMAT);
	case POINTER_RELATIVE_TO_HERE:
		return here + unbased(cursor, encoding & POINTER_FORMAT);
	case POINTER_RELATIVE_TO_DATA:
		return data + unbased(cursor, encoding & POINTER_FORMAT);
	case POINTER_ALIGNED:
		cursor->at += -here & 7;
		return dwarf_fixed(cursor, 8);
	default:
		cursor->failed = true;
		return 0;
	}
}

struct span dwarf_block(struct dwarf_cursor *cursor, uint64_t size)
{
	struct span block = { 0 };

	if (cursor->failed || !span_part(cursor->bytes, cursor->at, size, &block)) {
		cursor->failed = true;
		return block;
	}
	cursor->at += size;
	return block;
}
