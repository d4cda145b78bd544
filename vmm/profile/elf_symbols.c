/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/profile/elf_symbols.h"

#include <errno.h>
#include <gelf.h>
#include <stdbool.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/profile/elf_file.h"
#include "vmm/profile/profile_symbol_list.h"

/* Functions, objects and labels, as perf takes them (elf_sym__is_function, _is_object, _is_label). */
static bool is_wanted(const GElf_Sym *symbol, const char *name)
{
	unsigned int type = GELF_ST_TYPE(symbol->st_info);
	unsigned int visibility = GELF_ST_VISIBILITY(symbol->st_other);

	/* Absolute values are no addresses: sizes, names of versions. */
	if (!name || !*name || symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS)
		return false;
	if (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_OBJECT)
		return true;
	return type == STT_NOTYPE && visibility != STV_HIDDEN && visibility != STV_INTERNAL;
}

static char symbol_type(const GElf_Sym *symbol)
{
	bool object = GELF_ST_TYPE(symbol->st_info) == STT_OBJECT;

	if (GELF_ST_BIND(symbol->st_info) == STB_WEAK)
		return object ? 'V' : 'W';
	if (GELF_ST_BIND(symbol->st_info) == STB_GLOBAL)
		return object ? 'D' : 'T';
	return object ? 'd' : 't';
}

static Elf_Scn *find_table(Elf *elf, GElf_Shdr *header)
{
	Elf_Scn *dynamic = NULL, *section = NULL;

	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, header))
			continue;
		if (header->sh_type == SHT_SYMTAB)
			return section;
		if (header->sh_type == SHT_DYNSYM)
			dynamic = section;
	}
	return dynamic && gelf_getshdr(dynamic, header) ? dynamic : NULL;
}

bool elf_kind_of(const char *path, struct elf_kind *kind)
{
	struct elf_file file;
	GElf_Ehdr header;
	GElf_Shdr section;

	if (elf_file_open(&file, path))
		return false;
	kind->relocatable = gelf_getehdr(file.elf, &header) && header.e_type == ET_REL;
	kind->all = find_table(file.elf, &section) && section.sh_type == SHT_SYMTAB;
	elf_file_close(&file);
	return true;
}

static int add_symbol(struct symbol_list *list, const GElf_Sym *symbol, const char *name,
		      enum elf_symbols_addresses addresses, const struct elf_segments *segments)
{
	struct listed_symbol listed = {
		.start = symbol->st_value,
		.size = symbol->st_size,
		.name = name,
		.type = symbol_type(symbol),
	};

	if (addresses == ELF_FILE_OFFSETS && !elf_segments_offset(segments, symbol->st_value, &listed.start))
		return 0;
	return symbol_list_add(list, &listed);
}

static int read_table(const struct elf_file *file, enum elf_symbols_addresses addresses,
		      const struct elf_segments *segments, struct symbol_list *list)
{
	GElf_Shdr header;
	Elf_Scn *section = find_table(file->elf, &header);
	Elf_Data *data = section ? elf_getdata(section, NULL) : NULL;
	size_t count = data && header.sh_entsize ? data->d_size / header.sh_entsize : 0;
	GElf_Sym symbol;
	int error = 0;

	for (size_t i = 0; i < count && !error; i++) {
		const char *name;

		if (!gelf_getsym(data, (int)i, &symbol))
			break;
		name = elf_strptr(file->elf, header.sh_link, symbol.st_name);
		if (is_wanted(&symbol, name))
			error = add_symbol(list, &symbol, name, addresses, segments);
	}
	if (!error && !list->count)
		return error_set(-ENODATA, "%s has no symbols: it is stripped", file->path);
	return error;
}

/* SEGMENTS NULL: those of the file itself. */
static int load(struct symbols **symbols, const char *path, enum elf_symbols_addresses addresses,
		const struct elf_segments *segments, const uint8_t *build_id, size_t build_id_size)
{
	struct symbol_list list = { 0 };
	struct elf_segments own;
	struct elf_file file;
	int error = elf_file_open(&file, path);

	if (error)
		return error;
	error = elf_file_check(&file, build_id, build_id_size);
	elf_file_segments(&file, &own);
	if (!error)
		error = read_table(&file, addresses, segments ? segments : &own, &list);
	if (error)
		symbol_list_free(&list);
	else
		error = symbol_list_finish(&list, symbols);
	elf_file_close(&file);
	return error;
}

int elf_symbols_load(struct symbols **symbols, const char *path, enum elf_symbols_addresses addresses,
		     const uint8_t *build_id, size_t build_id_size)
{
	return load(symbols, path, addresses, NULL, build_id, build_id_size);
}

int elf_symbols_load_separate(struct symbols **symbols, const char *debug, const char *runtime,
			      const uint8_t *build_id, size_t build_id_size)
{
	struct elf_segments segments;
	struct elf_file file;
	int error = elf_file_open(&file, runtime);

	if (error)
		return error;
	error = elf_file_check(&file, build_id, build_id_size);
	elf_file_segments(&file, &segments);
	elf_file_close(&file);
	return error ? error : load(symbols, debug, ELF_FILE_OFFSETS, &segments, build_id, build_id_size);
}

int elf_build_id(const char *path, uint8_t *build_id)
{
	struct elf_file file;
	int error = elf_file_open(&file, path);

	if (error)
		return error;
	error = (int)elf_file_build_id(&file, build_id);
	elf_file_close(&file);
	return error;
}
