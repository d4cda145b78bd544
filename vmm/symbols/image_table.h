/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an ELF file says of its functions, as the guest's agent would send it (struct agent_symbols
 * and what follows, shared/agent_protocol.h). Any thread.
 */
#ifndef KVMSCOPE_SYMBOLS_IMAGE_TABLE_H
#define KVMSCOPE_SYMBOLS_IMAGE_TABLE_H

#include "shared/bytes.h"
#include "shared/elf_stubs.h"
#include "shared/elf_tables.h"

/*
 * TABLES were found in FILE, which has the bytes of its symbols; STUBS in that file, or in the one
 * that it is separate from, and both have counted from their own begins until now
 * (elf_stubs_append()). 0 and their table in *TABLE, whose data is the caller's to free; -ENOMEM,
 * or what FILE's read() says, and nothing.
 */
int image_table_read(struct bytes *table, const struct elf_source *file, struct elf_tables *tables,
		     struct elf_stubs *stubs);

#endif
