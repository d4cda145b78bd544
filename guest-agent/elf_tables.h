/* SPDX-License-Identifier: Apache-2.0 */
/* Where an ELF file has its symbols. Believes nothing of the file. */
#ifndef KVMSCOPE_AGENT_ELF_TABLES_H
#define KVMSCOPE_AGENT_ELF_TABLES_H

#include <elf.h>
#include <stdint.h>

#include "shared/agent_protocol.h"

struct elf_tables {
	struct agent_symbols head;
	Elf64_Phdr segments[AGENT_SEGMENTS_MAX]; /* those to be loaded; head.segments of them */
	uint64_t symbols, strings;               /* offsets in the file */
};

/*
 * Of the 64-bit file FD: .symtab, or else .dynsym. -ENODATA where it has neither; -EINVAL where it is no such
 * file; -EFBIG where they have more than AGENT_TABLE_MAX bytes. Symbols that are packed into .gnu_debugdata
 * are not looked for.
 */
int elf_tables_find(int fd, struct elf_tables *tables);

#endif
