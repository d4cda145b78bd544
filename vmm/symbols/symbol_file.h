/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ELF file of function symbols and a build id, without code, which perf and kvmscope find under
 * that build id. Symbols come from guests: bytes that are not printable ASCII are written as \xNN.
 * One thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_SYMBOL_FILE_H
#define KVMSCOPE_SYMBOLS_SYMBOL_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/bytes.h"

/*
 * The version of the form, in a note: a file of an earlier form, or without the note, may have
 * wrong symbols and is replaced. Increment it when the symbols of the same guest change.
 */
#define SYMBOL_FILE_FORM      2u
#define SYMBOL_FILE_NOTE      "kvmscope" /* its owner */
#define SYMBOL_FILE_NOTE_TYPE 1u

/* The note's content. */
struct symbol_file_note {
	uint32_t form;
	uint32_t
		exhausted; /* 1: these are all symbols that the file in the guest has; 0: unknown */
};

/* A file under construction. Zeroed: not begun. */
struct symbol_file {
	struct bytes table, strings;
};

struct symbol_file_head {
	uint16_t type; /* ET_REL: addresses are relative to the text; ET_EXEC: of the segments */
	const uint8_t *build_id;
	size_t build_id_size;
	uint64_t text_size;         /* bytes; all addresses are below it */
	const Elf64_Phdr *segments; /* of the mapped file; NULL with 0 */
	size_t segment_count;
	bool exhausted; /* see the note */
	bool dynamic; /* write .dynsym: readers then prefer a .symtab of the same build elsewhere */
};

/* Maximum number of bytes written for one byte of a name. */
#define SYMBOL_FILE_ESCAPED 4u

void symbol_file_begin(struct symbol_file *file);

/*
 * Adds a symbol with its st_info, st_value and st_size, which is not 0: readers would extend it to
 * the next symbol, because there is only one section. Out of memory, or beyond the 4 GiB of names
 * of an ELF file, the failure is kept in FILE (bytes.h).
 */
void symbol_file_add(struct symbol_file *file, const char *name, unsigned char info, uint64_t value,
		     uint64_t size);

/* Writes the file into TO, whose data the caller frees; check TO->failed. TO is empty without
 * symbols or build id. Frees FILE's memory. */
void symbol_file_end(struct symbol_file *file, const struct symbol_file_head *head,
		     struct bytes *to);

/* Frees FILE's memory instead. */
void symbol_file_drop(struct symbol_file *file);

#endif
