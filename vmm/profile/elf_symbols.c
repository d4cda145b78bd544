/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/profile/elf_symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/profile/profile_symbol_list.h"

struct elf_file {
	const char *path;
	int fd;
	Elf *elf;
};

static void elf_file_close(struct elf_file *file)
{
	if (file->elf)
		elf_end(file->elf);
	if (file->fd >= 0)
		close(file->fd);
}

/* Names of files come from recordings: what is no regular file is not waited for. */
static bool is_regular(int fd)
{
	struct stat status;

	return !fstat(fd, &status) && S_ISREG(status.st_mode);
}

static int elf_file_open(struct elf_file *file, const char *path)
{
	int error;

	*file = (struct elf_file){ .path = path,
				   .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) };
	if (file->fd < 0) {
		error = -errno;
		return error_set(error, "cannot open %s: %s", path, strerror(-error));
	}
	elf_version(EV_CURRENT);
	/* Not mapped: a file that shrinks in the meantime must not kill us. */
	file->elf = is_regular(file->fd) ? elf_begin(file->fd, ELF_C_READ, NULL) : NULL;
	if (!file->elf || elf_kind(file->elf) != ELF_K_ELF) {
		elf_file_close(file);
		return error_set(-EINVAL, "%s is no ELF file", path);
	}
	return 0;
}

/* Looks through the notes of DATA for NT_GNU_BUILD_ID; its size or 0. */
static size_t build_id_in(Elf_Data *data, uint8_t *build_id)
{
	size_t offset = 0, name, description;
	GElf_Nhdr header;

	while (data && (offset = gelf_getnote(data, offset, &header, &name, &description)) > 0) {
		if (header.n_type != NT_GNU_BUILD_ID || header.n_namesz != 4 || !header.n_descsz ||
		    header.n_descsz > ELF_BUILD_ID_MAX || memcmp((char *)data->d_buf + name, "GNU", 4) != 0)
			continue;
		memcpy(build_id, (char *)data->d_buf + description, header.n_descsz);
		return header.n_descsz;
	}
	return 0;
}

static size_t read_build_id(Elf *elf, uint8_t *build_id)
{
	size_t count = 0, size;
	GElf_Phdr segment;
	GElf_Shdr header;
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type == SHT_NOTE &&
		    (size = build_id_in(elf_getdata(section, NULL), build_id)))
			return size;
	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count; i++)
		if (gelf_getphdr(elf, (int)i, &segment) && segment.p_type == PT_NOTE &&
		    (size = build_id_in(elf_getdata_rawchunk(elf, (int64_t)segment.p_offset, segment.p_filesz,
							     ELF_T_NHDR),
					build_id)))
			return size;
	return 0;
}

static int check_build_id(const struct elf_file *file, const uint8_t *wanted, size_t wanted_size)
{
	uint8_t found[ELF_BUILD_ID_MAX] = { 0 };
	uint8_t padded[ELF_BUILD_ID_MAX] = { 0 };
	size_t size;

	if (!wanted_size)
		return 0;
	size = read_build_id(file->elf, found);
	memcpy(padded, wanted, wanted_size < sizeof(padded) ? wanted_size : sizeof(padded));
	if (size && size <= wanted_size && !memcmp(found, padded, sizeof(found)))
		return 0;
	return error_set(-ESTALE, "%s is not the build that was recorded: its build id differs", file->path);
}

/* Segments that say where in the file an address lies. */
struct segments {
	GElf_Phdr loaded[64];
	size_t count;
};

static void find_segments(Elf *elf, struct segments *segments)
{
	size_t count = 0;

	segments->count = 0;
	elf_getphdrnum(elf, &count);
	for (size_t i = 0;
	     i < count && segments->count < sizeof(segments->loaded) / sizeof(segments->loaded[0]); i++) {
		GElf_Phdr *segment = &segments->loaded[segments->count];

		if (gelf_getphdr(elf, (int)i, segment) && segment->p_type == PT_LOAD)
			segments->count++;
	}
}

static bool file_offset(const struct segments *segments, uint64_t address, uint64_t *offset)
{
	for (size_t i = 0; i < segments->count; i++) {
		const GElf_Phdr *segment = &segments->loaded[i];

		if (address >= segment->p_vaddr && address - segment->p_vaddr < segment->p_filesz) {
			*offset = address - segment->p_vaddr + segment->p_offset;
			return true;
		}
	}
	return false;
}

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
		      enum elf_symbols_addresses addresses, const struct segments *segments)
{
	struct listed_symbol listed = {
		.start = symbol->st_value,
		.size = symbol->st_size,
		.name = name,
		.type = symbol_type(symbol),
	};

	if (addresses == ELF_FILE_OFFSETS && !file_offset(segments, symbol->st_value, &listed.start))
		return 0;
	return symbol_list_add(list, &listed);
}

static int read_table(const struct elf_file *file, enum elf_symbols_addresses addresses,
		      const struct segments *segments, struct symbol_list *list)
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
		const struct segments *segments, const uint8_t *build_id, size_t build_id_size)
{
	struct symbol_list list = { 0 };
	struct segments own;
	struct elf_file file;
	int error = elf_file_open(&file, path);

	if (error)
		return error;
	error = check_build_id(&file, build_id, build_id_size);
	find_segments(file.elf, &own);
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
	struct segments segments;
	struct elf_file file;
	int error = elf_file_open(&file, runtime);

	if (error)
		return error;
	error = check_build_id(&file, build_id, build_id_size);
	find_segments(file.elf, &segments);
	elf_file_close(&file);
	return error ? error : load(symbols, debug, ELF_FILE_OFFSETS, &segments, build_id, build_id_size);
}

int elf_build_id(const char *path, uint8_t *build_id)
{
	struct elf_file file;
	int error = elf_file_open(&file, path);

	if (error)
		return error;
	error = (int)read_build_id(file.elf, build_id);
	elf_file_close(&file);
	return error;
}
