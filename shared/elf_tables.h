/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an ELF file has its symbols: for the guest's agent, which reads the file, and for
 * introspection, which finds as much of it as the guest has in its page cache. Believes nothing of
 * the file. (gABI, "Sections" and "Dynamic Section"; the GNU hash table as in binutils'
 * bfd/elflink.c.)
 */
#ifndef KVMSCOPE_SHARED_ELF_TABLES_H
#define KVMSCOPE_SHARED_ELF_TABLES_H

#include <elf.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/elf_source.h"

struct elf_tables {
	struct agent_symbols head;
	Elf64_Phdr segments[AGENT_SEGMENTS_MAX]; /* those to be loaded; head.segments of them */
	uint64_t symbols, strings;               /* offsets in the file */
	struct agent_section
		sections[AGENT_SECTIONS_MAX]; /* those with code, where sections tell the tables, */
	uint32_t section_count;               /* so many of them */
};

/* 0; -EINVAL where it is no 64-bit file; -EFAULT where its begin is not there. Any thread. */
int elf_header_read(const struct elf_source *file, Elf64_Ehdr *header);

/*
 * Of a 64-bit file: .symtab, or else .dynsym, by its sections, or where it tells of none, what its
 * dynamic linker uses. -ENODATA where it has neither; -EINVAL where it is no such file; -EFBIG
 * where they have more than AGENT_TABLE_MAX bytes, or more than AGENT_SEGMENTS_MAX parts to be
 * loaded; -EFAULT where what tells of them is not there. Symbols that are packed into
 * .gnu_debugdata are not looked for. Any thread.
 */
int elf_tables_find(const struct elf_source *file, struct elf_tables *tables);

/* The same, of what the dynamic linker uses only: it stands at the file's begin, and is read by
 * every process. */
int elf_tables_find_dynamic(const struct elf_source *file, struct elf_tables *tables);

/*
 * The same, but without symbols: what stands beside the build id, for whoever has those of the
 * build. As of .dynsym: they are not all.
 */
int elf_tables_find_segments(const struct elf_source *file, struct elf_tables *tables);

#endif
