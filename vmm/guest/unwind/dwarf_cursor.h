/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads DWARF numbers in sequence from untrusted bytes. A read past the end or with an invalid
 * encoding returns 0 and marks the cursor as failed for good: check once, at the end.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_DWARF_CURSOR_H
#define KVMSCOPE_GUEST_UNWIND_DWARF_CURSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"

struct dwarf_cursor {
	struct span bytes;
	uint64_t address; /* of the first byte, as linked */
	uint64_t at;      /* offset of the next byte */
	bool failed;
};

/* DW_EH_PE_*: LSB 5.0, Generic Part, 10.5.1. The low four bits are the format, the next three its
 * base. */
enum {
	POINTER_ABSOLUTE = 0x00,
	POINTER_FORMAT = 0x0f,
	POINTER_RELATIVE_TO_HERE = 0x10,
	POINTER_RELATIVE_TO_DATA = 0x30,
	POINTER_ALIGNED = 0x50,
	POINTER_BASE = 0x70,
	POINTER_INDIRECT = 0x80,
	POINTER_OMITTED = 0xff,
};

/* WIDTH is 1, 2, 4 or 8 bytes. */
uint64_t dwarf_fixed(struct dwarf_cursor *cursor, unsigned int width);

/* Bits beyond the 64th are dropped. */
uint64_t dwarf_uleb128(struct dwarf_cursor *cursor);
int64_t dwarf_sleb128(struct dwarf_cursor *cursor);

/*
 * A pointer with ENCODING; DATA is the base of data-relative ones. Function-relative, text-relative
 * and indirect ones do not occur in the tables of x86-64 that are read here: they fail.
 */
uint64_t dwarf_pointer(struct dwarf_cursor *cursor, uint8_t encoding, uint64_t data);

/* Consumes the next SIZE bytes; empty if there are fewer. */
struct span dwarf_block(struct dwarf_cursor *cursor, uint64_t size);

#endif
