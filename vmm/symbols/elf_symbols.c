/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/elf_symbols.h"

#include <errno.h>
#include <gelf.h>
#include <stdbool.h>
#include <string.h>

#include "shared/elf_stubs.h"
#include "shared/error.h"
#include "vmm/symbols/elf_file.h"
#include "vmm/symbols/symbol_list.h"

/* Limit for the sum of the names of a file's symbols, in bytes. */
#define NAMES_MAX ((size_t)1 << 30)

/* Functions, objects and labels, like perf (elf_sym__is_function, _is_object, _is_label). */
static bool is_symbol(const GElf_Sym *symbol, const char *name)
{
	unsigned int type = GELF_ST_TYPE(symbol->st_info);
	unsigned int visibility = GELF_ST_VISIBILITY(symbol->st_other);

	/* Absolute symbols are not addresses but sizes and version names. */
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

/* A symbol file has one text section at address 0, where linkers put a program's header. */
static bool is_placeholder(const GElf_Shdr *section)
{
	return section->sh_type == SHT_NOBITS && section->sh_flags & SHF_EXECINSTR &&
	       !section->sh_addr;
}

static bool has_symbols_only(Elf *elf)
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;

	while ((section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && is_placeholder(&header))
			return true;
	return false;
}

/* False: DATA has no such note. */
static bool read_note(Elf_Data *data, struct symbol_file_note *note)
{
	size_t offset = 0, owner, content;
	GElf_Nhdr header;

	while (data && (offset = gelf_getnote(data, offset, &header, &owner, &content)) > 0) {
		if (header.n_type != SYMBOL_FILE_NOTE_TYPE ||
		    header.n_namesz != sizeof(SYMBOL_FILE_NOTE) ||
		    header.n_descsz != sizeof(*note) ||
		    memcmp((char *)data->d_buf + owner, SYMBOL_FILE_NOTE, header.n_namesz) != 0)
			continue;
		memcpy(note, (char *)data->d_buf + content, sizeof(*note));
		return true;
	}
	return false;
}

static struct symbol_file_note note_of(Elf *elf)
{
	struct symbol_file_note note = { 0 };
	uint64_t left = ELF_NOTES_MAX;
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	bool found = false;

	while (!found && (section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type == SHT_NOTE)
			found = read_note(elf_file_data(section, &left), &note);
	return note;
}

bool elf_kind_of(const char *path, struct elf_kind *kind)
{
	struct elf_file file;
	GElf_Ehdr header;
	GElf_Shdr section;

	if (elf_file_open(&file, path))
		return false;
	kind->relocatable = gelf_getehdr(file.elf, &header) && header.e_type == ET_REL;
	kind->symbols_only = has_symbols_only(file.elf);
	kind->all = find_table(file.elf, &section) && section.sh_type == SHT_SYMTAB;
	kind->note = note_of(file.elf);
	elf_file_close(&file);
	return true;
}

/* The bytes of SYMBOL's section from its start on; 0: unknown section. */
static uint64_t rest_of_section(Elf *elf, const GElf_Sym *symbol)
{
	Elf_Scn *section =
		symbol->st_shndx < SHN_LORESERVE ? elf_getscn(elf, symbol->st_shndx) : NULL;
	GElf_Shdr header;
	uint64_t into;

	if (!section || !gelf_getshdr(section, &header) || is_placeholder(&header))
		return 0;
	into = symbol->st_value - header.sh_addr;
	return into < header.sh_size ? header.sh_size - into : 0;
}

/* A table being read into LIST. */
struct reading {
	const struct elf_file *file;
	enum elf_symbols_addresses addresses;
	const struct elf_segments *segments;
	struct symbol_list *list;
	bool dynamic; /* .dynsym: functions between two symbols may be missing */
	size_t names; /* bytes of the names read so far */
	bool stubs;   /* only PLT stubs, from a symbol file, which has no code to find them in */
};

static int add_symbol(const struct reading *reading, const GElf_Sym *symbol, const char *name)
{
	struct listed_symbol listed = {
		.start = symbol->st_value,
		.size = symbol->st_size,
		.name = name,
		.type = symbol_type(symbol),
	};
	uint64_t left = symbol->st_size ? 0 : rest_of_section(reading->file->elf, symbol);

	if (!symbol->st_size && (!left || reading->dynamic))
		return 0;
	if (reading->addresses == ELF_FILE_OFFSETS &&
	    !elf_segments_offset(reading->segments, symbol->st_value, &listed.start))
		return 0;
	listed.limit = listed.start + left;
	return symbol_list_add(reading->list, &listed);
}

/* Symbols may share a long name, so the sum is not limited by the table's size. */
static bool charge_name(struct reading *reading, const char *name)
{
	size_t left = NAMES_MAX - reading->names;

	reading->names += name ? strnlen(name, left) : 0;
	return reading->names < NAMES_MAX;
}

static bool is_larger(Elf_Scn *section, uint64_t limit)
{
	GElf_Shdr header;

	return section && gelf_getshdr(section, &header) && header.sh_size > limit;
}

static int read_table(struct reading *reading)
{
	const struct elf_file *file = reading->file;
	GElf_Shdr header;
	Elf_Scn *section = find_table(file->elf, &header);
	uint64_t left = ELF_SYMBOLS_MAX;
	Elf_Data *data = section ? elf_file_data(section, &left) : NULL;
	struct elf_strings strings = { 0 };
	size_t count = data && header.sh_entsize ? data->d_size / header.sh_entsize : 0;
	GElf_Sym symbol;
	int error = 0;

	if (is_larger(section, ELF_SYMBOLS_MAX) ||
	    (section && is_larger(elf_getscn(file->elf, header.sh_link), ELF_STRINGS_MAX)))
		return error_set(-EFBIG, "%s has a symbol table that is too large", file->path);
	reading->dynamic = section && header.sh_type == SHT_DYNSYM;
	if (count)
		strings = elf_file_strings(file, header.sh_link);
	for (size_t i = 0; i < count && !error; i++) {
		const char *name;

		if (!gelf_getsym(data, (int)i, &symbol))
			break;
		name = elf_strings_at(&strings, symbol.st_name);
		if (!charge_name(reading, name))
			return error_set(-EFBIG, "%s has too many symbols", file->path);
		if (is_symbol(&symbol, name) && (!reading->stubs || strstr(name, "@plt")))
			error = add_symbol(reading, &symbol, name);
	}
	return error;
}

/* Adds the stubs in the file's code; STUBS holds their names. */
static int add_stubs(const struct reading *reading, struct elf_stubs *stubs)
{
	int fd = reading->file->fd;
	const struct elf_source source = { .read = elf_file_read_at, .context = &fd };
	int error = elf_stubs_find(&source, stubs) == -ENOMEM ? -ENOMEM : 0;

	for (uint32_t i = 0; !error && i < stubs->count; i++) {
		const Elf64_Sym *symbol = &stubs->symbols[i];
		struct listed_symbol listed = { .start = symbol->st_value,
						.size = symbol->st_size,
						.name = stubs->strings + symbol->st_name,
						.type = 't' };

		if (reading->addresses == ELF_VIRTUAL_ADDRESSES ||
		    elf_segments_offset(reading->segments, symbol->st_value, &listed.start))
			error = symbol_list_add(reading->list, &listed);
	}
	return error;
}

/* Loads the symbols of FILE and the stubs of RUNTIME, which may be the same file. */
static int load(struct symbols **symbols, const struct elf_file *file,
		const struct elf_file *runtime, enum elf_symbols_addresses addresses)
{
	struct elf_stubs stubs = { 0 };
	struct symbol_list list = { 0 };
	struct elf_segments segments;
	struct reading reading = {
		.file = file, .addresses = addresses, .segments = &segments, .list = &list
	};
	int error;

	elf_file_segments(runtime, &segments);
	error = read_table(&reading);
	reading.file = runtime;
	reading.stubs = true;
	if (!error && runtime != file)
		error = read_table(&reading);
	if (!error)
		error = add_stubs(&reading, &stubs);
	if (!error && !list.count)
		error = error_set(-ENODATA, "%s has no symbols: it is stripped", file->path);
	if (error)
		symbol_list_free(&list);
	else
		error = symbol_list_finish(&list, symbols);
	elf_stubs_free(&stubs);
	return error;
}

int elf_symbols_read(struct symbols **symbols, const struct elf_file *file,
		     enum elf_symbols_addresses addresses)
{
	return load(symbols, file, file, addresses);
}

/* elf_file_open() with a check of the build id. */
static int open_build(struct elf_file *file, const char *path, struct span build_id)
{
	int error = elf_file_open(file, path);

	if (error)
		return error;
	error = elf_file_check(file, build_id);
	if (error)
		elf_file_close(file);
	return error;
}

int elf_symbols_load(struct symbols **symbols, const char *path,
		     enum elf_symbols_addresses addresses, struct span build_id)
{
	struct elf_file file;
	int error = open_build(&file, path, build_id);

	if (error)
		return error;
	error = load(symbols, &file, &file, addresses);
	elf_file_close(&file);
	return error;
}

int elf_symbols_load_separate(struct symbols **symbols, const char *debug, const char *runtime,
			      struct span build_id)
{
	struct elf_file file, separate;
	int error = open_build(&file, runtime, build_id);

	if (error)
		return error;
	error = open_build(&separate, debug, build_id);
	if (!error) {
		error = load(symbols, &separate, &file, ELF_FILE_OFFSETS);
		elf_file_close(&separate);
	}
	elf_file_close(&file);
	return error;
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
