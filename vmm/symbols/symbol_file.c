/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/symbol_file.h"

#include <stdlib.h>
#include <string.h>

enum {
	SECTION_NONE,
	SECTION_TEXT,
	SECTION_NOTE,
	SECTION_SYMBOLS,
	SECTION_STRINGS,
	SECTION_NAMES,
	SECTION_FORM,
	SECTIONS,
};

static const char names[] =
	"\0.text\0.note.gnu.build-id\0.symtab\0.strtab\0.shstrtab\0.dynsym\0.dynstr\0.note.kvmscope";
static const uint32_t name_of[SECTIONS] = { 0, 1, 7, 26, 34, 42, 68 };
static const uint32_t dynamic_name_of[SECTIONS] = { 0, 1, 7, 52, 60, 42, 68 };

void symbol_file_begin(struct symbol_file *file)
{
	*file = (struct symbol_file){ 0 };
	bytes_add_zeros(&file->table, sizeof(Elf64_Sym));
	bytes_add(&file->strings, "", 1);
}

static void add_name(struct bytes *to, const char *name)
{
	static const char digits[] = "0123456789abcdef";

	for (; *name; name++) {
		uint8_t byte = (uint8_t)*name;

		if (byte >= ' ' && byte < 127)
			bytes_add(to, &byte, 1);
		else
			bytes_add(to, (char[]){ '\\', 'x', digits[byte >> 4], digits[byte & 15] },
				  SYMBOL_FILE_ESCAPED);
	}
	bytes_add(to, "", 1);
}

void symbol_file_add(struct symbol_file *file, const char *name, unsigned char info, uint64_t value,
		     uint64_t size)
{
	const Elf64_Sym symbol = { .st_name = (uint32_t)file->strings.size,
				   .st_info = info,
				   .st_shndx = SECTION_TEXT,
				   .st_value = value,
				   .st_size = size };

	/* st_name has 32 bits. */
	if (file->strings.size > UINT32_MAX)
		file->strings.failed = true;
	bytes_add(&file->table, &symbol, sizeof(symbol));
	add_name(&file->strings, name);
}

static void make_note(struct bytes *note, const char *owner, uint32_t type, const void *content,
		      size_t size)
{
	const Elf64_Nhdr header = { .n_namesz = (uint32_t)strlen(owner) + 1,
				    .n_descsz = (uint32_t)size,
				    .n_type = type };

	bytes_add(note, &header, sizeof(header));
	bytes_add(note, owner, header.n_namesz);
	bytes_pad(note, 4);
	bytes_add(note, content, size);
	bytes_pad(note, 4);
}

/* Appends a section's content. */
static void add_section(struct bytes *to, Elf64_Shdr *section, const void *content, size_t size)
{
	section->sh_offset = to->size;
	section->sh_size = size;
	bytes_add(to, content, size);
	bytes_pad(to, 8);
}

/* Local symbols, the first empty one among them, precede the others, and sh_info is the index of
 * the first of these (System V gABI, chapter 4). */
static void add_symbols(struct bytes *to, Elf64_Shdr *section, const struct bytes *table)
{
	Elf64_Sym symbol;

	section->sh_offset = to->size;
	section->sh_size = table->size;
	for (unsigned int others = 0; others < 2; others++)
		for (size_t at = 0; at < table->size; at += sizeof(symbol)) {
			bool local;

			memcpy(&symbol, table->data + at, sizeof(symbol));
			local = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL;
			if (local == others)
				continue;
			bytes_add(to, &symbol, sizeof(symbol));
			section->sh_info += local;
		}
	bytes_pad(to, 8);
}

static void add_file(struct bytes *to, const struct symbol_file_head *head,
		     const struct symbol_file *file, const struct bytes *build_id,
		     const struct bytes *form)
{
	/* The text's offset is 0, like its address: readers use one for the other. */
	Elf64_Shdr sections[SECTIONS] = {
		[SECTION_TEXT] = { .sh_type = SHT_NOBITS,
				   .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
				   .sh_size = head->text_size },
		[SECTION_NOTE] = { .sh_type = SHT_NOTE, .sh_addralign = 4 },
		[SECTION_SYMBOLS] = { .sh_type = head->dynamic ? SHT_DYNSYM : SHT_SYMTAB,
				      .sh_link = SECTION_STRINGS,
				      .sh_addralign = 8,
				      .sh_entsize = sizeof(Elf64_Sym) },
		[SECTION_STRINGS] = { .sh_type = SHT_STRTAB },
		[SECTION_NAMES] = { .sh_type = SHT_STRTAB },
		[SECTION_FORM] = { .sh_type = SHT_NOTE, .sh_addralign = 4 },
	};
	Elf64_Ehdr header = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			     EV_CURRENT },
		.e_type = head->type,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = head->segment_count ? sizeof(header) : 0,
		.e_ehsize = sizeof(header),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = (uint16_t)head->segment_count,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = SECTIONS,
		.e_shstrndx = SECTION_NAMES,
	};

	for (size_t i = 0; i < SECTIONS; i++)
		sections[i].sh_name = head->dynamic ? dynamic_name_of[i] : name_of[i];
	bytes_add(to, &header, sizeof(header));
	bytes_add(to, head->segments, head->segment_count * sizeof(*head->segments));
	add_section(to, &sections[SECTION_NOTE], build_id->data, build_id->size);
	add_symbols(to, &sections[SECTION_SYMBOLS], &file->table);
	add_section(to, &sections[SECTION_STRINGS], file->strings.data, file->strings.size);
	add_section(to, &sections[SECTION_NAMES], names, sizeof(names));
	add_section(to, &sections[SECTION_FORM], form->data, form->size);
	header.e_shoff = to->size;
	bytes_add(to, sections, sizeof(sections));
	if (!to->failed)
		memcpy(to->data, &header, sizeof(header));
}

void symbol_file_drop(struct symbol_file *file)
{
	free(file->table.data);
	free(file->strings.data);
	*file = (struct symbol_file){ 0 };
}

void symbol_file_end(struct symbol_file *file, const struct symbol_file_head *head,
		     struct bytes *to)
{
	const struct symbol_file_note own = { SYMBOL_FILE_FORM, head->exhausted };
	struct bytes build_id = { 0 }, form = { 0 };

	*to = (struct bytes){ 0 };
	make_note(&build_id, "GNU", NT_GNU_BUILD_ID, head->build_id, head->build_id_size);
	make_note(&form, SYMBOL_FILE_NOTE, SYMBOL_FILE_NOTE_TYPE, &own, sizeof(own));
	to->failed = file->table.failed || file->strings.failed || build_id.failed || form.failed;
	if (!to->failed && head->build_id_size && file->table.size > sizeof(Elf64_Sym))
		add_file(to, head, file, &build_id, &form);
	free(build_id.data);
	free(form.data);
	symbol_file_drop(file);
}
