/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/image_file.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/agent_protocol.h"
#include "shared/array.h"
#include "vmm/symbols/symbol_file.h"

/* More than the size of headers, notes and section names. */
#define PAGE 4096u

#define SECTIONS_SIZE_MAX (AGENT_SECTIONS_MAX * sizeof(struct agent_section))

struct image {
	Elf64_Phdr segments[AGENT_SEGMENTS_MAX];
	size_t segment_count;
	struct span symbols, strings, sections;
	bool dynamic; /* exported functions only: others may lie between them */
};

/* Only the fields that map addresses to file offsets. */
static Elf64_Phdr plain_segment(const Elf64_Phdr *from)
{
	return (Elf64_Phdr){
		.p_type = PT_LOAD,
		.p_flags = from->p_flags & (PF_R | PF_W | PF_X),
		.p_offset = from->p_offset,
		.p_vaddr = from->p_vaddr,
		.p_paddr = from->p_vaddr,
		.p_filesz = from->p_filesz,
		.p_memsz = from->p_memsz,
		.p_align = 4096,
	};
}

static bool parse_table(struct span table, struct image *image)
{
	struct agent_symbols head;
	uint64_t offset = sizeof(head);

	if (!span_copy(table, 0, &head, sizeof(head)) || head.segments > AGENT_SEGMENTS_MAX)
		return false;
	for (image->segment_count = 0; image->segment_count < head.segments;
	     image->segment_count++) {
		Elf64_Phdr segment;

		if (!span_copy(table, offset, &segment, sizeof(segment)))
			return false;
		image->segments[image->segment_count] = plain_segment(&segment);
		offset += sizeof(segment);
	}
	image->dynamic = head.section == AGENT_SYMBOLS_DYNSYM;
	if (!span_part(table, offset, head.symbols, &image->symbols) ||
	    !span_part(table, offset + head.symbols, head.strings, &image->strings))
		return false;
	offset += (uint64_t)head.symbols + head.strings;
	image->sections = span_of(table.data + offset, table.size - offset);
	if (image->sections.size > SECTIONS_SIZE_MAX)
		image->sections.size = SECTIONS_SIZE_MAX;
	return true;
}

/* Functions and labels, as elf_symbols.c and perf read them: all are needed to find the ends of
 * symbols without a size. */
static bool is_function(const struct image *image, const Elf64_Sym *symbol)
{
	unsigned int type = ELF64_ST_TYPE(symbol->st_info);
	unsigned int visibility = ELF64_ST_VISIBILITY(symbol->st_other);

	if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS ||
	    symbol->st_shndx == SHN_COMMON)
		return false;
	if (image->dynamic && !symbol->st_size)
		return false;
	if (type == STT_FUNC || type == STT_GNU_IFUNC)
		return true;
	return type == STT_NOTYPE && visibility != STV_HIDDEN && visibility != STV_INTERNAL;
}

static uint64_t end_of(const struct image *image)
{
	uint64_t end = 0;

	for (size_t i = 0; i < image->segment_count; i++) {
		const Elf64_Phdr *segment = &image->segments[i];

		if (segment->p_memsz <= UINT64_MAX - segment->p_vaddr &&
		    segment->p_vaddr + segment->p_memsz > end)
			end = segment->p_vaddr + segment->p_memsz;
	}
	return end;
}

/* NULL: no name at OFFSET, or it is too long; *COST then grows by the bytes that were searched. */
static const char *find_name(struct span strings, uint32_t offset, uint64_t *cost)
{
	struct span name;

	if (!span_part(strings, offset, strings.size - offset, &name))
		return NULL;
	name.size = name.size < IMAGE_FILE_NAME_MAX ? name.size : IMAGE_FILE_NAME_MAX;
	if (name.size && memchr(name.data, '\0', name.size))
		return *name.data ? (const char *)name.data : NULL;
	*cost += name.size;
	return NULL;
}

struct symbol_start {
	uint64_t start;
	bool sized;
};

/*
 * Ends of symbols without a size, as in assembly code: the next symbol, or the end of the section
 * if that comes first, because the code after it may belong to no symbol (PLT stubs after _init).
 */
struct symbol_ends {
	struct symbol_start *starts; /* one for each symbol, smaller than it */
	size_t count;
	struct span sections; /* of struct agent_section; an incomplete last one is ignored */
};

/* At one address, symbols with a size come first. */
static int by_start(const void *left, const void *right)
{
	const struct symbol_start *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return b->sized - a->sized;
}

/* The number of symbols before ADDRESS. */
static size_t lower_bound(const struct symbol_ends *ends, uint64_t address)
{
	return array_partition(ends->count, i, ends->starts[i].start < address);
}

/* ADDRESS itself if it is in no section. */
static uint64_t end_of_section(const struct symbol_ends *ends, uint64_t address)
{
	struct agent_section section;

	for (uint64_t offset = 0; span_copy(ends->sections, offset, &section, sizeof(section));
	     offset += sizeof(section))
		if (address >= section.start && address - section.start < section.size &&
		    section.size <= UINT64_MAX - section.start)
			return section.start + section.size;
	return address;
}

/* SYMBOL's own size, else the distance to its end. 0: unknown, or another symbol at its address
 * has a size and is preferred. */
static uint64_t symbol_size(const struct symbol_ends *ends, const Elf64_Sym *symbol)
{
	uint64_t start = symbol->st_value, end;
	size_t at;

	if (symbol->st_size)
		return symbol->st_size;
	at = lower_bound(ends, start);
	if (at < ends->count && ends->starts[at].start == start && ends->starts[at].sized)
		return 0;
	end = end_of_section(ends, start);
	at = start < UINT64_MAX ? lower_bound(ends, start + 1) : ends->count;
	if (at < ends->count && ends->starts[at].start < end)
		end = ends->starts[at].start;
	return end - start;
}

/* Starts of all symbols. -ENOMEM. */
static int find_ends(struct symbol_ends *ends, const struct image *image)
{
	size_t most = image->symbols.size / sizeof(Elf64_Sym);
	Elf64_Sym symbol;

	ends->sections = image->sections;
	ends->starts = calloc(most + 1, sizeof(*ends->starts));
	if (!ends->starts)
		return -ENOMEM;
	for (uint64_t offset = 0; span_copy(image->symbols, offset, &symbol, sizeof(symbol));
	     offset += sizeof(symbol))
		if (is_function(image, &symbol))
			ends->starts[ends->count++] =
				(struct symbol_start){ symbol.st_value, symbol.st_size };
	qsort(ends->starts, ends->count, sizeof(*ends->starts), by_start);
	return 0;
}

/*
 * Limit in bytes of all names: those of all strings, escaped and counted once, plus 25 %. Symbols
 * of real files may share strings or their ends, but stay below it. In a hostile table a million
 * symbols have the same string of megabytes.
 */
static uint64_t names_limit(struct span strings)
{
	uint64_t size = 0;

	for (size_t i = 0; i < strings.size; i++)
		size += !strings.data[i] || (strings.data[i] >= ' ' && strings.data[i] <= '~')
				? 1
				: SYMBOL_FILE_ESCAPED;
	return size + size / 4;
}

/* False: the names exceed their limit. */
static bool add_symbols(struct symbol_file *file, const struct image *image,
			const struct symbol_ends *ends)
{
	const uint64_t limit = names_limit(image->strings);
	uint64_t cost = 0;
	Elf64_Sym symbol;

	for (uint64_t offset = 0; span_copy(image->symbols, offset, &symbol, sizeof(symbol));
	     offset += sizeof(symbol)) {
		uint64_t size = is_function(image, &symbol) ? symbol_size(ends, &symbol) : 0;
		const char *name = size ? find_name(image->strings, symbol.st_name, &cost) : NULL;

		if (name)
			symbol_file_add(file, name, symbol.st_info, symbol.st_value, size);
		if (file->strings.size + cost > limit)
			return false;
		if (file->table.failed || file->strings.failed)
			return true; /* symbol_file_end() reports it */
	}
	return true;
}

void image_file_make(struct bytes *to, struct span table, struct span build_id, bool exhausted)
{
	struct symbol_file_head head = { .type = ET_EXEC,
					 .build_id = build_id.data,
					 .build_id_size = build_id.size,
					 .exhausted = exhausted };
	struct symbol_ends ends = { 0 };
	struct symbol_file file;
	struct image image;
	bool added;

	*to = (struct bytes){ 0 };
	if (!parse_table(table, &image))
		return;
	symbol_file_begin(&file);
	file.table.failed = file.table.failed || find_ends(&ends, &image);
	added = file.table.failed || add_symbols(&file, &image, &ends);
	free(ends.starts);
	if (!added) {
		symbol_file_drop(&file);
		return;
	}
	head.segments = image.segments;
	head.segment_count = image.segment_count;
	head.text_size = end_of(&image);
	head.dynamic = image.dynamic;
	symbol_file_end(&file, &head, to);
}

/* The symbol file and the copy of it; before that, the starts of the symbols. */
size_t image_file_cost(struct span table)
{
	struct image image;

	if (!parse_table(table, &image))
		return 0;
	return 3 * image.symbols.size + 2 * (names_limit(image.strings) + PAGE);
}

static int add_part(struct bytes *table, const struct elf_source *file, uint64_t offset,
		    size_t size)
{
	size_t before = table->size;

	bytes_add_zeros(table, size);
	if (table->failed)
		return -ENOMEM;
	return size ? file->read(file->context, offset, table->data + before, size) : 0;
}

int image_table_read(struct bytes *table, const struct elf_source *file, struct elf_tables *tables,
		     struct elf_stubs *stubs)
{
	const uint32_t symbols = tables->head.symbols, strings = tables->head.strings;
	int error;

	*table = (struct bytes){ 0 };
	elf_stubs_append(stubs, tables);
	bytes_add(table, &tables->head, sizeof(tables->head));
	bytes_add(table, tables->segments, tables->head.segments * sizeof(tables->segments[0]));
	error = add_part(table, file, tables->symbols, symbols);
	bytes_add(table, stubs->symbols, stubs->count * sizeof(*stubs->symbols));
	if (!error)
		error = add_part(table, file, tables->strings, strings);
	bytes_add(table, stubs->strings, stubs->size);
	bytes_add(table, tables->sections, tables->section_count * sizeof(tables->sections[0]));
	if (!error && table->failed)
		error = -ENOMEM;
	if (error) {
		free(table->data);
		*table = (struct bytes){ 0 };
	}
	return error;
}
