/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbol table of a guest's program or library, in the form in which the guest agent sends it
 * (struct agent_symbols, shared/agent_protocol.h), read from an ELF file and written as a symbol
 * file (symbol_file.h). Tables come from guests and are not trusted. Any thread.
 */
#ifndef KVMSCOPE_SYMBOLS_IMAGE_FILE_H
#define KVMSCOPE_SYMBOLS_IMAGE_FILE_H

#include <stdbool.h>

#include "shared/bytes.h"
#include "shared/elf_stubs.h"
#include "shared/elf_tables.h"
#include "shared/span.h"

/* Size of a symbol's name with its NUL; functions with longer names are left out. */
#define IMAGE_FILE_NAME_MAX 4096u

/*
 * Writes the functions of TABLE into TO, whose data the caller frees; check TO->failed. TO is empty
 * if TABLE is broken or has no functions, or if its symbols share strings to such an extent that
 * their names need over 25 % more bytes than all strings, each escaped and counted once. BUILD_ID
 * has at most 20 bytes. EXHAUSTED: TABLE is all that its source has (symbol_file.h).
 */
void image_file_make(struct bytes *to, struct span table, struct span build_id, bool exhausted);

/* Upper limit of the memory in bytes that this uses for TABLE, its result included. */
size_t image_file_cost(struct span table);

/*
 * Reads the symbols that TABLES found in FILE into *TABLE, whose data the caller frees, together
 * with STUBS (which it appends, elf_stubs_append()): those of FILE, or of the file that FILE is
 * separate from. The time limits of both, which start with their begin functions, still apply. 0,
 * -ENOMEM, or the error of FILE's read(), with *TABLE empty.
 */
int image_table_read(struct bytes *table, const struct elf_source *file, struct elf_tables *tables,
		     struct elf_stubs *stubs);

#endif
