/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/profile/module_file.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/profile/build_id_cache.h"

enum {
	SECTION_NONE,
	SECTION_TEXT,
	SECTION_NOTE,
	SECTION_SYMBOLS,
	SECTION_STRINGS,
	SECTION_NAMES,
	SECTIONS,
};

static const char names[] = "\0.text\0.note.gnu.build-id\0.symtab\0.strtab\0.shstrtab";
static const uint32_t name_of[SECTIONS] = { 0, 1, 7, 26, 34, 42 };

static void add_functions(const struct guest_module *module, const struct symbols *from, struct bytes *table,
			  struct bytes *strings)
{
	size_t count = from ? symbols_count(from) : 0;
	struct symbol symbol;

	for (size_t i = 0; i < count; i++) {
		Elf64_Sym entry = { .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				    .st_shndx = SECTION_TEXT };

		symbols_at(from, i, &symbol);
		if (!symbol.module || strcmp(symbol.module, module->name) != 0 ||
		    !strchr("tTwW", symbol.type) || symbol.start - module->start >= module->size ||
		    !build_id_cache_name_is_plain(symbol.name))
			continue;
		entry.st_name = (uint32_t)strings->size;
		entry.st_value = symbol.start - module->start;
		entry.st_size = symbol.end - symbol.start;
		bytes_add(table, &entry, sizeof(entry));
		bytes_add(strings, symbol.name, strlen(symbol.name) + 1);
	}
}

static void make_note(struct bytes *note, const struct guest_module *module)
{
	const Elf64_Nhdr header = { .n_namesz = 4,
				    .n_descsz = (uint32_t)module->build_id_size,
				    .n_type = NT_GNU_BUILD_ID };

	bytes_add(note, &header, sizeof(header));
	bytes_add(note, "GNU", 4);
	bytes_add(note, module->build_id, module->build_id_size);
	bytes_pad(note, 4);
}

/* A section's content, behind what is there. */
static void add_section(struct bytes *to, Elf64_Shdr *section, const void *content, size_t size)
{
	section->sh_offset = to->size;
	section->sh_size = size;
	bytes_add(to, content, size);
	bytes_pad(to, 8);
}

static void add_file(struct bytes *to, const struct guest_module *module, const struct bytes *table,
		     const struct bytes *strings, const struct bytes *note)
{
	/* The text's offset is 0, as that of its mapping: readers take one for the other. */
	Elf64_Shdr sections[SECTIONS] = {
		[SECTION_TEXT] = { .sh_type = SHT_NOBITS,
				   .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
				   .sh_size = module->size },
		[SECTION_NOTE] = { .sh_type = SHT_NOTE, .sh_addralign = 4 },
		[SECTION_SYMBOLS] = { .sh_type = SHT_SYMTAB,
				      .sh_link = SECTION_STRINGS,
				      .sh_info = 1,
				      .sh_addralign = 8,
				      .sh_entsize = sizeof(Elf64_Sym) },
		[SECTION_STRINGS] = { .sh_type = SHT_STRTAB },
		[SECTION_NAMES] = { .sh_type = SHT_STRTAB },
	};
	Elf64_Ehdr header = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_REL,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_ehsize = sizeof(header),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = SECTIONS,
		.e_shstrndx = SECTION_NAMES,
	};

	for (size_t i = 0; i < SECTIONS; i++)
		sections[i].sh_name = name_of[i];
	bytes_add(to, &header, sizeof(header));
	add_section(to, &sections[SECTION_NOTE], note->data, note->size);
	add_section(to, &sections[SECTION_SYMBOLS], table->data, table->size);
	add_section(to, &sections[SECTION_STRINGS], strings->data, strings->size);
	add_section(to, &sections[SECTION_NAMES], names, sizeof(names));
	header.e_shoff = to->size;
	bytes_add(to, sections, sizeof(sections));
	if (!to->failed)
		memcpy(to->data, &header, sizeof(header));
}

void module_file_make(struct bytes *to, const struct guest_module *module, const struct symbols *first,
		      const struct symbols *second)
{
	struct bytes table = { 0 }, strings = { 0 }, note = { 0 };

	*to = (struct bytes){ 0 };
	bytes_add_zeros(&table, sizeof(Elf64_Sym));
	bytes_add(&strings, "", 1);
	add_functions(module, first, &table, &strings);
	if (table.size == sizeof(Elf64_Sym))
		add_functions(module, second, &table, &strings);
	make_note(&note, module);
	to->failed = table.failed || strings.failed || note.failed;
	if (!to->failed && module->build_id_size && table.size > sizeof(Elf64_Sym))
		add_file(to, module, &table, &strings, &note);
	free(table.data);
	free(strings.data);
	free(note.data);
}
