/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's own symbol table, as scripts/kallsyms.c writes it to .rodata, found and read by its
 * structure alone. The order of the tables, their alignment and the encoding of addresses changed
 * over time:
 *
 *   until 6.3   addresses, count, names, markers, (6.2: sequence,) tokens, token index
 *   since 6.4   count, names, markers, tokens, token index, addresses, sequence
 *
 * Tables are aligned to the size of a pointer, which the base has, too: 8 bytes, or 4 in a 32-bit
 * kernel. The variant is found by trying, not from the kernel's version. The bytes are untrusted.
 * Any thread.
 */
#ifndef KVMSCOPE_GUEST_LINUX_KALLSYMS_H
#define KVMSCOPE_GUEST_LINUX_KALLSYMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

#define KALLSYMS_NAME_MAX         512 /* KSYM_NAME_LEN, including the NUL */
#define KALLSYMS_TOKEN_INDEX_SIZE 512 /* bytes */

enum kallsyms_encoding {
	KALLSYMS_PC_RELATIVE,      /* s32, relative to its own address */
	KALLSYMS_BASE_RELATIVE,    /* u32, relative to the base */
	KALLSYMS_ABSOLUTE_PER_CPU, /* s32: absolute if not negative, else base - 1 - value */
	KALLSYMS_ABSOLUTE,         /* a pointer */
};

struct kallsyms {
	struct span window; /* a copy of guest memory that contains all tables */
	uint64_t gva;       /* of the window's first byte */
	uint32_t count;     /* of symbols */
	bool long_lengths;  /* the length of a name is ULEB128 (since 6.1), else one byte */
	unsigned int word;  /* bytes of a pointer of the kernel; 4 if GVA is below 4 GiB */
	/* Offsets in the window. */
	uint64_t count_at, names, markers, tokens, token_index, addresses;
	uint64_t token_at[256];
	uint8_t token_length[256];
	enum kallsyms_encoding encoding;
	uint64_t base;
};

/* Finds the next token index in BYTES at or after FROM, 4-byte aligned. False: there is none. */
bool kallsyms_find_token_index(struct span bytes, uint64_t from, uint64_t *token_index);

/*
 * Finds the tables of names around the token index at TOKEN_INDEX of WINDOW, which must outlive
 * KALLSYMS. -ENOENT: the tables are not complete.
 */
int kallsyms_locate(struct kallsyms *kallsyms, struct span window, uint64_t gva,
		    uint64_t token_index);

/*
 * Selects variant NUMBER (from 0) of the table of addresses. -ENOENT if the addresses are not
 * ascending or not a kernel's, -ERANGE after the last variant. More than one may be plausible: the
 * caller verifies the resulting symbols.
 */
int kallsyms_try_addresses(struct kallsyms *kallsyms, unsigned int number);

/* The address of symbol INDEX (below count), after a variant was selected. */
uint64_t kallsyms_address(const struct kallsyms *kallsyms, uint32_t index);

/*
 * Reads the name at *POSITION (0: the first) to NAME of KALLSYMS_NAME_MAX bytes, and moves
 * *POSITION past it. -EINVAL if it is not a valid name.
 */
int kallsyms_next_name(const struct kallsyms *kallsyms, uint64_t *position, char *type, char *name);

#endif
