/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ELF file that has functions' names and a build id, and no code: what perf
 * and we look for under that build id. Names come from guests: of them
 * only printable ASCII is passed on, other bytes as \xNN. Any thread, one at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_SYMBOL_FILE_H
#define KVMSCOPE_SYMBOLS_SYMBOL_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/bytes.h"

/*
 * What such a file says of itself, as a note: a file of an earlier form, or that says none, may
 * have what is wrong by now, and makes room for a newer one. One more whenever names change for the
 * same guest.
 */
#define SYMBOL_FILE_FORM      2u
#define SYMBOL_FILE_NOTE      "kvmscope" /* its owner */
#define SYMBOL_FILE_NOTE_TYPE 1u

/* The note's content. */
struct symbol_file_note {
	uint32_t form;
	uint32_t exhausted; /* 1: who has the file in the guest has no more names of it; 0: not
			       known */
};

/* What is put together. Zeroed: not begun. */
struct symbol_file {
	struct bytes table, strings;
};

struct symbol_file_head {
	uint16_t type; /* ET_REL: addresses are relative to the text; ET_EXEC: they are those of the
			* segments
			*/
	const uint8_t *build_id;
	size_t build_id_size;
	uint64_t text_size;         /* bytes that all addresses are in */
	const Elf64_Phdr *segments; /* where in the file that is mapped they lie; NULL with 0 */
	size_t segment_count;
	bool exhausted; /* the note's */
	bool dynamic;   /* a .dynsym: readers take a .symtab of the same build before it, wherever
			 * they find one
			 */
};

/* Bytes that one byte of a name takes at most. */
#define SYMBOL_FILE_ESCAPED 4u

void symbol_file_begin(struct symbol_file *file);

/*
 * A symbol with its st_info, st_value and st_size, which is not 0: readers would let it reach up to
 * the next one, as there is but one section. Without memory, or above the 4 GiB of names that an
 * ELF file can have, FILE remembers that as its parts do (bytes.h).
 */
void symbol_file_add(struct symbol_file *file, const char *name, unsigned char info, uint64_t value,
		     uint64_t size);

/*
 * The file into TO, whose data is the caller's to free; check TO->failed. TO is empty where there
 * is no symbol or no build id. Frees what FILE has.
 */
void symbol_file_end(struct symbol_file *file, const struct symbol_file_head *head,
		     struct bytes *to);

/* In place of the former: frees what FILE has. */
void symbol_file_drop(struct symbol_file *file);

#endif
