/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's own symbol table, as scripts/kallsyms.c lays it out in
 * .rodata, found and read by its structure alone. The order of the tables,
 * their alignment and the form of the addresses changed over time:
 *
 *   to 6.3    addresses, count, names, markers, (6.2: sequence,) tokens, token index
 *   from 6.4  count, names, markers, tokens, token index, addresses, sequence
 *
 * Which of them a kernel has is tried, never read from its version. Nothing
 * here trusts the bytes; any thread.
 */
#ifndef KVMSCOPE_GUEST_LINUX_KALLSYMS_H
#define KVMSCOPE_GUEST_LINUX_KALLSYMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

#define KALLSYMS_NAME_MAX         512 /* KSYM_NAME_LEN, the NUL included */
#define KALLSYMS_TOKEN_INDEX_SIZE 512 /* bytes */

enum kallsyms_encoding {
	KALLSYMS_PC_RELATIVE,      /* s32, relative to where it stands */
	KALLSYMS_BASE_RELATIVE,    /* u32, from the base */
	KALLSYMS_ABSOLUTE_PER_CPU, /* s32: absolute from 0 up, else base - 1 - value */
	KALLSYMS_ABSOLUTE,         /* u64 */
};

struct kallsyms {
	struct span window; /* a copy of guest memory that holds all tables */
	uint64_t gva;       /* of the window's first byte */
	uint32_t count;     /* of symbols */
	bool long_lengths;  /* a name's length is ULEB128 (from 6.1), else one byte */
	/* Offsets in the window. */
	uint64_t count_at, names, markers, tokens, token_index, addresses;
	uint64_t token_at[256];
	uint8_t token_length[256];
	enum kallsyms_encoding encoding;
	uint64_t base;
};

/* The offset of the next token index at or behind FROM, 4-byte aligned in BYTES. False: there is
 * none. */
bool kallsyms_find_token_index(struct span bytes, uint64_t from, uint64_t *token_index);

/*
 * Finds the tables of names around the token index at TOKEN_INDEX of WINDOW,
 * which must outlive KALLSYMS. -ENOENT: it belongs to no complete table.
 */
int kallsyms_locate(struct kallsyms *kallsyms, struct span window, uint64_t gva,
		    uint64_t token_index);

/*
 * Tries form NUMBER (from 0) of the table of addresses; -ENOENT if the
 * addresses would not ascend or not be a kernel's, -ERANGE behind the last
 * form. More than one may seem right: the caller checks what the names mean.
 */
int kallsyms_try_addresses(struct kallsyms *kallsyms, unsigned int number);

/* The address of symbol INDEX (below count), once a form was chosen. */
uint64_t kallsyms_address(const struct kallsyms *kallsyms, uint32_t index);

/*
 * Reads the name at *POSITION (0 the first) of the stream of names, NAME
 * with KALLSYMS_NAME_MAX bytes, and moves *POSITION behind it. -EINVAL if it is no name.
 */
int kallsyms_next_name(const struct kallsyms *kallsyms, uint64_t *position, char *type, char *name);

#endif
