/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/elf_tables.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define HEADERS_AT_ONCE 16u

/* Limits for headers that are read one by one. */
#define HEADERS_MAX 256u
#define DYNAMIC_MAX 512u

/* Most symbols of a table. */
#define SYMBOLS_MAX (AGENT_TABLE_MAX / sizeof(Elf64_Sym))

/* Most symbols of one hash bucket; linkers create buckets of a few. */
#define CHAIN_MAX 4096u

struct elf_file {
	const struct elf_source *source;
	Elf64_Ehdr header;
	Elf64_Phdr dynamic; /* p_filesz 0: none */
};

static int read_at(const struct elf_file *file, uint64_t offset, void *to, size_t size)
{
	return file->source->read(file->source->context, offset, to, size);
}

int elf_header_read(const struct elf_source *file, Elf64_Ehdr *header)
{
	int error = file->read(file->context, 0, header, sizeof(*header));

	if (error)
		return error;
	return !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
			       header->e_ident[EI_CLASS] == ELFCLASS64 &&
			       header->e_ident[EI_DATA] == ELFDATA2LSB
		       ? 0
		       : -EINVAL;
}

static int find_segments(struct elf_file *file, struct elf_tables *tables)
{
	const Elf64_Ehdr *header = &file->header;

	if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > HEADERS_MAX)
		return -EINVAL;
	for (unsigned int i = 0; i < header->e_phnum; i++) {
		Elf64_Phdr segment;
		int error = read_at(file, header->e_phoff + i * sizeof(segment), &segment,
				    sizeof(segment));

		if (error)
			return error;
		if (segment.p_type == PT_LOAD && tables->head.segments == AGENT_SEGMENTS_MAX)
			return -EFBIG;
		if (segment.p_type == PT_LOAD)
			tables->segments[tables->head.segments++] = segment;
		if (segment.p_type == PT_DYNAMIC)
			file->dynamic = segment;
	}
	return 0;
}

static int open_file(struct elf_file *file, const struct elf_source *source,
		     struct elf_tables *tables)
{
	int error;

	*tables = (struct elf_tables){ 0 };
	*file = (struct elf_file){ .source = source };
	error = elf_header_read(source, &file->header);
	return error ? error : find_segments(file, tables);
}

static int use(struct elf_tables *tables, enum agent_symbols_section which,
	       const Elf64_Shdr *symbols, const Elf64_Shdr *strings)
{
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

/* --- by its sections ------------------------------------------------------------ */

int elf_section_read(const struct elf_source *file, const Elf64_Ehdr *header, unsigned int number,
		     Elf64_Shdr *section)
{
	if (number >= header->e_shnum)
		return -EINVAL;
	return file->read(file->context, header->e_shoff + number * sizeof(*section), section,
			  sizeof(*section));
}

int elf_sections_each(const struct elf_source *file, const Elf64_Ehdr *header,
		      void (*each)(void *context, const Elf64_Shdr *section, unsigned int number),
		      void *context)
{
	Elf64_Shdr sections[HEADERS_AT_ONCE];
	int error = 0;

	for (unsigned int first = 0; !error && first < header->e_shnum; first += HEADERS_AT_ONCE) {
		unsigned int left = header->e_shnum - first;
		unsigned int count = left < HEADERS_AT_ONCE ? left : HEADERS_AT_ONCE;

		error = file->read(file->context, header->e_shoff + first * sizeof(*sections),
				   sections, count * sizeof(*sections));
		for (unsigned int i = 0; !error && i < count; i++)
			each(context, &sections[i], first + i);
	}
	return error;
}

/* The first sections of each type; SHT_NULL: none. */
struct symbol_sections {
	Elf64_Shdr all, dynamic;
	struct elf_tables *tables; /* gets the sections with code */
};

static void scan_section(void *context, const Elf64_Shdr *section, unsigned int number)
{
	struct symbol_sections *symbols = context;
	struct elf_tables *tables = symbols->tables;

	if (section->sh_type == SHT_SYMTAB && symbols->all.sh_type == SHT_NULL)
		symbols->all = *section;
	if (section->sh_type == SHT_DYNSYM && symbols->dynamic.sh_type == SHT_NULL)
		symbols->dynamic = *section;
	if (section->sh_flags & SHF_ALLOC && section->sh_flags & SHF_EXECINSTR &&
	    tables->section_count < AGENT_SECTIONS_MAX)
		tables->sections[tables->section_count++] =
			(struct agent_section){ section->sh_addr, section->sh_size };
}

static int find_by_sections(const struct elf_file *file, struct elf_tables *tables)
{
	struct symbol_sections found = { .tables = tables };
	const Elf64_Shdr *symbols;
	Elf64_Shdr strings;
	bool all;
	int error;

	if (file->header.e_shentsize != sizeof(Elf64_Shdr))
		return -ENODATA;
	error = elf_sections_each(file->source, &file->header, scan_section, &found);
	if (error)
		return error;
	all = found.all.sh_type == SHT_SYMTAB;
	symbols = all ? &found.all : &found.dynamic;
	if (symbols->sh_type == SHT_NULL)
		return -ENODATA;
	error = elf_section_read(file->source, &file->header, symbols->sh_link, &strings);
	if (error)
		return error;
	if (symbols->sh_entsize != sizeof(Elf64_Sym) || strings.sh_type != SHT_STRTAB)
		return -EINVAL;
	return use(tables, all ? AGENT_SYMBOLS_SYMTAB : AGENT_SYMBOLS_DYNSYM, symbols, &strings);
}

/* --- by its dynamic section, which contains addresses ---------------------------- */

struct dynamic {
	uint64_t symbols, strings, strings_size, entry_size, hash, gnu_hash; /* 0: none */
};

static uint64_t *value_of(struct dynamic *dynamic, int64_t tag)
{
	switch (tag) {
	case DT_SYMTAB:
		return &dynamic->symbols;
	case DT_STRTAB:
		return &dynamic->strings;
	case DT_STRSZ:
		return &dynamic->strings_size;
	case DT_SYMENT:
		return &dynamic->entry_size;
	case DT_HASH:
		return &dynamic->hash;
	case DT_GNU_HASH:
		return &dynamic->gnu_hash;
	default:
		return NULL;
	}
}

static int read_dynamic(const struct elf_file *file, struct dynamic *dynamic)
{
	Elf64_Dyn entry;

	*dynamic = (struct dynamic){ 0 };
	for (uint64_t i = 0; i < DYNAMIC_MAX && (i + 1) * sizeof(entry) <= file->dynamic.p_filesz;
	     i++) {
		int error = read_at(file, file->dynamic.p_offset + i * sizeof(entry), &entry,
				    sizeof(entry));
		uint64_t *value = error ? NULL : value_of(dynamic, entry.d_tag);

		if (error)
			return error;
		if (entry.d_tag == DT_NULL)
			break;
		if (value)
			*value = entry.d_un.d_val;
	}
	if (!dynamic->symbols || !dynamic->strings)
		return -ENODATA;
	return dynamic->entry_size == sizeof(Elf64_Sym) ? 0 : -EINVAL;
}

/* File offset of ADDRESS; UINT64_MAX: not in the file. */
static uint64_t offset_of(const struct elf_tables *tables, uint64_t address)
{
	for (uint32_t i = 0; i < tables->head.segments; i++) {
		const Elf64_Phdr *segment = &tables->segments[i];

		if (address >= segment->p_vaddr && address - segment->p_vaddr < segment->p_filesz)
			return segment->p_offset + (address - segment->p_vaddr);
	}
	return UINT64_MAX;
}

/* The SysV hash table has one chain entry per symbol. */
static int count_by_hash(const struct elf_file *file, uint64_t offset, uint64_t *count)
{
	uint32_t head[2]; /* buckets, chains */
	int error = read_at(file, offset, head, sizeof(head));

	*count = head[1];
	return error;
}

/* The highest symbol number at the start of a bucket. */
static int highest_bucket(const struct elf_file *file, uint64_t offset, uint32_t buckets,
			  uint32_t *highest)
{
	uint32_t part[64];

	*highest = 0;
	for (uint64_t first = 0; first < buckets; first += 64) {
		uint64_t count = buckets - first < 64 ? buckets - first : 64;
		int error = read_at(file, offset + first * sizeof(*part), part,
				    (size_t)count * sizeof(*part));

		if (error)
			return error;
		for (uint64_t i = 0; i < count; i++)
			*highest = part[i] > *highest ? part[i] : *highest;
	}
	return 0;
}

/* A bucket's symbols are consecutive, and the last one has an odd hash. */
static int count_by_gnu_hash(const struct elf_file *file, uint64_t offset, uint64_t *count)
{
	uint32_t head[4]; /* buckets, first symbol in a bucket, words of the Bloom filter, shift */
	uint32_t number, hash = 0;
	uint64_t chains;
	int error = read_at(file, offset, head, sizeof(head));

	if (error)
		return error;
	if (head[0] > SYMBOLS_MAX || head[2] > SYMBOLS_MAX)
		return -EINVAL;
	offset += sizeof(head) + head[2] * sizeof(uint64_t);
	chains = offset + head[0] * sizeof(uint32_t);
	error = highest_bucket(file, offset, head[0], &number);
	*count = number < head[1] ? head[1] : number;
	if (error || number < head[1])
		return error; /* no symbol is in a bucket: all are undefined */
	for (; !(hash & 1); ++*count) {
		if (*count - number == CHAIN_MAX)
			return -EINVAL;
		error = read_at(file, chains + (*count - head[1]) * sizeof(hash), &hash,
				sizeof(hash));
		if (error)
			return error;
	}
	return 0;
}

static int count_symbols(const struct elf_file *file, const struct elf_tables *tables,
			 const struct dynamic *dynamic, uint64_t *count)
{
	uint64_t offset = offset_of(tables, dynamic->hash ? dynamic->hash : dynamic->gnu_hash);

	if (offset == UINT64_MAX)
		return -ENODATA;
	return dynamic->hash ? count_by_hash(file, offset, count)
			     : count_by_gnu_hash(file, offset, count);
}

static int find_by_dynamic(const struct elf_file *file, struct elf_tables *tables)
{
	struct dynamic dynamic;
	uint64_t count = 0;
	int error = read_dynamic(file, &dynamic);
	Elf64_Shdr symbols, strings;

	if (!error)
		error = count_symbols(file, tables, &dynamic, &count);
	if (error)
		return error;
	if (count > SYMBOLS_MAX)
		return -EFBIG;
	symbols = (Elf64_Shdr){ .sh_offset = offset_of(tables, dynamic.symbols),
				.sh_size = count * sizeof(Elf64_Sym) };
	strings = (Elf64_Shdr){ .sh_offset = offset_of(tables, dynamic.strings),
				.sh_size = dynamic.strings_size };
	if (symbols.sh_offset == UINT64_MAX || strings.sh_offset == UINT64_MAX)
		return -EINVAL;
	return use(tables, AGENT_SYMBOLS_DYNSYM, &symbols, &strings);
}

/* -------------------------------------------------------------------------------- */

int elf_tables_find(const struct elf_source *source, struct elf_tables *tables)
{
	struct elf_file file;
	int error = open_file(&file, source, tables);

	if (error)
		return error;
	error = find_by_sections(&file, tables);
	return error == -ENODATA ? find_by_dynamic(&file, tables) : error;
}

int elf_tables_find_segments(const struct elf_source *source, struct elf_tables *tables)
{
	struct elf_file file;
	int error = open_file(&file, source, tables);

	tables->head.section = AGENT_SYMBOLS_DYNSYM;
	return error;
}

int elf_tables_find_dynamic(const struct elf_source *source, struct elf_tables *tables)
{
	struct elf_file file;
	int error = open_file(&file, source, tables);

	return error ? error : find_by_dynamic(&file, tables);
}
