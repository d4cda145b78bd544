/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the symbol table of an ELF file, for the guest agent, which reads the file, and for
 * introspection, which has only the parts in the guest's page cache. The file is untrusted. (gABI,
 * "Sections" and "Dynamic Section"; GNU hash table: binutils' bfd/elflink.c.)
 */
#ifndef KVMSCOPE_SHARED_ELF_TABLES_H
#define KVMSCOPE_SHARED_ELF_TABLES_H

#include <elf.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/elf_source.h"

struct elf_tables {
	struct agent_symbols head;
	Elf64_Phdr segments[AGENT_SEGMENTS_MAX];           /* PT_LOAD; head.segments of them */
	uint64_t symbols, strings;                         /* offsets in the file */
	struct agent_section sections[AGENT_SECTIONS_MAX]; /* with code, if found by sections */
	uint32_t section_count;                            /* of sections */
};

/* 0; -EINVAL if it is not a 64-bit ELF file; -EFAULT if its header is unavailable. Any thread. */
int elf_header_read(const struct elf_source *file, Elf64_Ehdr *header);

/* Reads header NUMBER of the sections. -EINVAL: there is no such section. Any thread. */
int elf_section_read(const struct elf_source *file, const Elf64_Ehdr *header, unsigned int number,
		     Elf64_Shdr *section);

/* Calls EACH for each section in order. Any thread. */
int elf_sections_each(const struct elf_source *file, const Elf64_Ehdr *header,
		      void (*each)(void *context, const Elf64_Shdr *section, unsigned int number),
		      void *context);

/* For a 64-bit file: .symtab, else .dynsym, by its section headers, or without these by its dynamic
 * section. -ENODATA: no symbols; -EINVAL: not such a file; -EFBIG: more than AGENT_TABLE_MAX bytes
 * or AGENT_SEGMENTS_MAX segments; -EFAULT: the headers are unavailable. Does not read compressed
 * symbols in .gnu_debugdata. Any thread.
 */
int elf_tables_find(const struct elf_source *file, struct elf_tables *tables);

/* The same by the dynamic section only, which is at the beginning of the file and read by every
 * process. */
int elf_tables_find_dynamic(const struct elf_source *file, struct elf_tables *tables);

/* Only the segments, without symbols, for callers that have the symbols of the build id.
 * head.section is AGENT_SYMBOLS_DYNSYM.
 */
int elf_tables_find_segments(const struct elf_source *file, struct elf_tables *tables);

#endif
