// SPDX-License-Identifier: Apache-2.0
#include "vmm/symbols/image_file.h"

#include <elf.h>
#include <stdbool.h>
#include <string.h>

#include "shared/agent_protocol.h"
#include "vmm/symbols/symbol_ends.h"
#include "vmm/symbols/symbol_file.h"

/* Headers, notes and names of sections take less. */
#define PAGE 4096u

#define SECTIONS_SIZE_MAX (AGENT_SECTIONS_MAX * sizeof(struct agent_section))

struct image {
	Elf64_Phdr segments[AGENT_SEGMENTS_MAX];
	size_t segment_count;
	struct span symbols, strings, sections;
	bool dynamic; /* they are those that others may call: what lies between two is not known */
};

/* What says where in the file an address lies, and nothing else. */
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

static bool take_apart(struct span table, struct image *image)
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

/* Functions and labels, as readers of the file itself would take them (elf_symbols.c, and perf):
 * one without a size reaches up to the next, which needs all of them. */
static bool is_wanted(const struct image *image, const Elf64_Sym *symbol)
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

/*
 * NULL: there is none at OFFSET, or it is too long. *COST gets how many bytes were looked at to say
 * so, and is left alone otherwise.
 */
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

/* -ENOMEM. */
static int find_ends(struct symbol_ends *ends, const struct image *image)
{
	int error =
		symbol_ends_begin(ends, image->symbols.size / sizeof(Elf64_Sym), image->sections);
	Elf64_Sym symbol;

	for (uint64_t offset = 0;
	     !error && span_copy(image->symbols, offset, &symbol, sizeof(symbol));
	     offset += sizeof(symbol))
		if (is_wanted(image, &symbol))
			symbol_ends_add(ends, &symbol);
	symbol_ends_finish(ends);
	return error;
}

/*
 * Bytes that names may take: those of all strings, each once and escaped, and a quarter more.
 * Symbols may share a string, or be the ends of each other's, but of real files their sum is below
 * that. In a hostile one each of a million has the same string of megabytes.
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

/* False: the names take more than they may. */
static bool add_symbols(struct symbol_file *file, const struct image *image,
			const struct symbol_ends *ends)
{
	const uint64_t limit = names_limit(image->strings);
	uint64_t cost = 0;
	Elf64_Sym symbol;

	for (uint64_t offset = 0; span_copy(image->symbols, offset, &symbol, sizeof(symbol));
	     offset += sizeof(symbol)) {
		uint64_t size = is_wanted(image, &symbol) ? symbol_ends_size(ends, &symbol) : 0;
		const char *name = size ? find_name(image->strings, symbol.st_name, &cost) : NULL;

		if (name)
			symbol_file_add(file, name, symbol.st_info, symbol.st_value, size);
		if (file->strings.size + cost > limit)
			return false;
		if (file->table.failed || file->strings.failed)
			return true; /* which the file's end tells */
	}
	return true;
}

/* HEAD is without what TABLE tells. */
static void make(struct bytes *to, struct span table, struct symbol_file_head head)
{
	struct symbol_ends ends = { 0 };
	struct symbol_file file;
	struct image image;
	bool added;

	*to = (struct bytes){ 0 };
	if (!take_apart(table, &image))
		return;
	symbol_file_begin(&file);
	file.table.failed = file.table.failed || find_ends(&ends, &image);
	added = file.table.failed || add_symbols(&file, &image, &ends);
	symbol_ends_free(&ends);
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

void image_file_make(struct bytes *to, struct span table, const uint8_t *build_id,
		     size_t build_id_size)
{
	make(to, table,
	     (struct symbol_file_head){
		     .type = ET_EXEC, .build_id = build_id, .build_id_size = build_id_size });
}

void image_file_make_exhausted(struct bytes *to, struct span table, const uint8_t *build_id,
			       size_t build_id_size)
{
	make(to, table,
	     (struct symbol_file_head){ .type = ET_EXEC,
					.build_id = build_id,
					.build_id_size = build_id_size,
					.exhausted = true });
}

/* What is put together, and the file that it is copied into; and before that, where symbols end. */
size_t image_file_cost(struct span table)
{
	struct image image;

	if (!take_apart(table, &image))
		return 0;
	return 3 * image.symbols.size + 2 * (names_limit(image.strings) + PAGE);
}
