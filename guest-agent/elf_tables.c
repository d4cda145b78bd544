// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/elf_tables.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define HEADERS_AT_ONCE 16u

/* Program headers; each is read by itself. */
#define HEADERS_MAX 256u

static bool read_header(int fd, Elf64_Ehdr *header)
{
	return pread(fd, header, sizeof(*header), 0) == sizeof(*header) &&
	       !memcmp(header->e_ident, ELFMAG, SELFMAG) && header->e_ident[EI_CLASS] == ELFCLASS64 &&
	       header->e_ident[EI_DATA] == ELFDATA2LSB;
}

static int find_segments(int fd, const Elf64_Ehdr *header, struct elf_tables *tables)
{
	if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > HEADERS_MAX)
		return -EINVAL;
	for (unsigned int i = 0; i < header->e_phnum && tables->head.segments < AGENT_SEGMENTS_MAX; i++) {
		Elf64_Phdr *segment = &tables->segments[tables->head.segments];

		if (pread(fd, segment, sizeof(*segment), (off_t)(header->e_phoff + i * sizeof(*segment))) !=
		    sizeof(*segment))
			return -EINVAL;
		tables->head.segments += segment->p_type == PT_LOAD;
	}
	return 0;
}

static bool read_section(int fd, const Elf64_Ehdr *header, unsigned int number, Elf64_Shdr *section)
{
	return number < header->e_shnum &&
	       pread(fd, section, sizeof(*section), (off_t)(header->e_shoff + number * sizeof(*section))) ==
		       sizeof(*section);
}

/* The first section of TYPE; false without one. */
static bool find_section(int fd, const Elf64_Ehdr *header, uint32_t type, Elf64_Shdr *found)
{
	Elf64_Shdr sections[HEADERS_AT_ONCE];

	for (unsigned int first = 0; first < header->e_shnum; first += HEADERS_AT_ONCE) {
		unsigned int count = header->e_shnum - first;
		ssize_t size;

		count = count < HEADERS_AT_ONCE ? count : HEADERS_AT_ONCE;
		size = pread(fd, sections, count * sizeof(*sections),
			     (off_t)(header->e_shoff + first * sizeof(*sections)));
		for (unsigned int i = 0; i < count && (ssize_t)((i + 1) * sizeof(*sections)) <= size; i++)
			if (sections[i].sh_type == type) {
				*found = sections[i];
				return true;
			}
	}
	return false;
}

static int use(struct elf_tables *tables, enum agent_symbols_section which, const Elf64_Shdr *symbols,
	       const Elf64_Shdr *strings)
{
	if (symbols->sh_entsize != sizeof(Elf64_Sym) || strings->sh_type != SHT_STRTAB)
		return -EINVAL;
	if (symbols->sh_size > AGENT_TABLE_MAX || strings->sh_size > AGENT_TABLE_MAX ||
	    symbols->sh_size + strings->sh_size > AGENT_TABLE_MAX - sizeof(*tables))
		return -EFBIG;
	tables->head.section = which;
	tables->head.symbols = (uint32_t)symbols->sh_size;
	tables->head.strings = (uint32_t)strings->sh_size;
	tables->symbols = symbols->sh_offset;
	tables->strings = strings->sh_offset;
	return 0;
}

int elf_tables_find(int fd, struct elf_tables *tables)
{
	Elf64_Shdr symbols, strings;
	Elf64_Ehdr header;
	bool all;
	int error;

	*tables = (struct elf_tables){ 0 };
	if (!read_header(fd, &header))
		return -EINVAL;
	error = find_segments(fd, &header, tables);
	if (error)
		return error;
	if (header.e_shentsize != sizeof(Elf64_Shdr))
		return -ENODATA;
	all = find_section(fd, &header, SHT_SYMTAB, &symbols);
	if (!all && !find_section(fd, &header, SHT_DYNSYM, &symbols))
		return -ENODATA;
	if (!read_section(fd, &header, symbols.sh_link, &strings))
		return -EINVAL;
	return use(tables, all ? AGENT_SYMBOLS_SYMTAB : AGENT_SYMBOLS_DYNSYM, &symbols, &strings);
}
