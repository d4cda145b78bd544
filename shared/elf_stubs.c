/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/elf_stubs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"

/* Sections of each kind that are read. */
#define SECTIONS_MAX 4u

/* Items per read. */
#define ENTRIES_AT_ONCE 256u
#define NAME_AT_ONCE    64u

/* Limits; those of code and relocations are per section. The last relocations are read, as those of
 * slots follow the relative ones. */
#define CODE_MAX        (1u << 20)
#define RELOCATIONS_MAX (32u << 10)
#define SYMBOLS_MAX     (64u << 10)
#define RESOLVERS_MAX   1024u
#define NAME_SIZE_MAX   4096u /* with the NUL */
#define NAMES_READ_MAX  (2ul * ELF_STUBS_NAMES_MAX)

/* Bytes of a stub: 16, or 8 if its slot is not bound lazily. */
#define UNIT         16u
#define SMALL        8u
#define CODE_AT_ONCE (64u * UNIT)

#define ENDBR64 "\xf3\x0f\x1e\xfa"
#define BND     0xf2
#define JUMP    "\xff\x25" /* jmp *disp32(%rip) */
#define PADDING "\x66\x90"

struct stub {
	uint64_t address, slot;
	uint64_t resolver; /* address of the IRELATIVE resolver; 0: the slot has a symbol */
	uint32_t symbol;   /* its number; 0: unknown yet */
	uint16_t size;     /* bytes */
	bool global;       /* the resolver's symbol is global */
};

struct sections {
	Elf64_Shdr of[SECTIONS_MAX];
	unsigned int count;
};

struct reading {
	const struct elf_source *source;
	Elf64_Ehdr header;
	Elf64_Shdr names; /* of sections */
	struct sections code, relocations;
	Elf64_Shdr symbols, strings; /* .dynsym, else .symtab (static programs) */
	unsigned int symbols_number; /* of that section; 0: none */
	struct stub *stubs;
	size_t count, capacity;
	size_t unresolved; /* stubs without a relocation yet */
	size_t names_read; /* bytes */
};

static int read_at(const struct reading *reading, uint64_t offset, void *to, size_t size)
{
	return reading->source->read(reading->source->context, offset, to, size);
}

/* --- sections -------------------------------------------------------------- */

static bool has_stubs(const struct reading *reading, const Elf64_Shdr *section)
{
	static const char *const names[] = { ".plt", ".plt.sec", ".plt.got", ".plt.bnd" };
	char name[sizeof(".plt.sec")] = "";
	uint64_t left = section->sh_name < reading->names.sh_size
				? reading->names.sh_size - section->sh_name
				: 0;

	if (section->sh_type != SHT_PROGBITS || !(section->sh_flags & SHF_EXECINSTR) ||
	    read_at(reading, reading->names.sh_offset + section->sh_name, name,
		    left < sizeof(name) ? left : sizeof(name)))
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(name, names[i], sizeof(name)))
			return true;
	return false;
}

static void add_section(struct sections *sections, const Elf64_Shdr *section)
{
	if (sections->count < SECTIONS_MAX)
		sections->of[sections->count++] = *section;
}

/* Prefers .dynsym; static programs have only .symtab. */
static bool has_better_symbols(const struct reading *reading, const Elf64_Shdr *section)
{
	if (section->sh_entsize != sizeof(Elf64_Sym))
		return false;
	return reading->symbols_number
		       ? section->sh_type == SHT_DYNSYM && reading->symbols.sh_type == SHT_SYMTAB
		       : section->sh_type == SHT_DYNSYM || section->sh_type == SHT_SYMTAB;
}

static void scan_section(void *context, const Elf64_Shdr *section, unsigned int number)
{
	struct reading *reading = context;

	if (has_stubs(reading, section))
		add_section(&reading->code, section);
	if (section->sh_type == SHT_RELA && section->sh_flags & SHF_ALLOC &&
	    section->sh_entsize == sizeof(Elf64_Rela))
		add_section(&reading->relocations, section);
	if (has_better_symbols(reading, section)) {
		reading->symbols = *section;
		reading->symbols_number = number;
	}
}

static int open_file(struct reading *reading)
{
	const Elf64_Ehdr *header = &reading->header;
	int error = elf_header_read(reading->source, &reading->header);

	if (error)
		return error;
	if (header->e_machine != EM_X86_64 || header->e_shentsize != sizeof(Elf64_Shdr))
		return -EINVAL;
	error = elf_section_read(reading->source, header, header->e_shstrndx, &reading->names);
	if (!error)
		error = elf_sections_each(reading->source, header, scan_section, reading);
	return error ? error
		     : elf_section_read(reading->source, header, reading->symbols.sh_link,
					&reading->strings);
}

/* --- stubs and their slots --------------------------------------------------------- */

/* Decodes the stub in the SIZE bytes of CODE at ADDRESS, if there is one. */
static bool is_stub(const uint8_t *code, size_t size, uint64_t address, struct stub *stub)
{
	size_t at = size >= 4 && !memcmp(code, ENDBR64, 4) ? 4 : 0;
	int32_t distance;

	if (at < size && code[at] == BND)
		at++;
	if (size < at + 6 || memcmp(code + at, JUMP, 2) != 0)
		return false;
	memcpy(&distance, code + at + 2, sizeof(distance));
	*stub = (struct stub){ .address = address,
			       .slot = address + at + 6 + (uint64_t)(int64_t)distance,
			       .size = (uint16_t)size };
	return true;
}

static int add_stub(struct reading *reading, const struct stub *stub)
{
	if (array_reserve(&reading->stubs, &reading->capacity, reading->count + 1))
		return -ENOMEM;
	reading->stubs[reading->count++] = *stub;
	return 0;
}

/* A unit has one stub, or two small ones. */
static int scan_unit(struct reading *reading, const uint8_t *code, size_t size, uint64_t address)
{
	bool two = size > SMALL, is_small;
	struct stub first, second;
	int error = 0;

	two = two && is_stub(code + SMALL, size - SMALL, address + SMALL, &second);
	is_small = two || (size > SMALL && !memcmp(code, JUMP, 2) &&
			   !memcmp(code + SMALL - 2, PADDING, 2));
	if (is_stub(code, is_small ? SMALL : size, address, &first))
		error = add_stub(reading, &first);
	return error || !two ? error : add_stub(reading, &second);
}

static int scan_code(struct reading *reading, const Elf64_Shdr *section)
{
	const uint64_t end = section->sh_size < CODE_MAX ? section->sh_size : CODE_MAX;
	uint8_t code[CODE_AT_ONCE];

	for (uint64_t done = 0; done < end; done += sizeof(code)) {
		uint64_t left = end - done;
		size_t size = left < sizeof(code) ? (size_t)left : sizeof(code);
		int error = read_at(reading, section->sh_offset + done, code, size);

		for (size_t at = 0; !error && at < size; at += UNIT) {
			if (reading->count + 2 > ELF_STUBS_MAX)
				return 0;
			error = scan_unit(reading, code + at, size - at < UNIT ? size - at : UNIT,
					  section->sh_addr + done + at);
		}
		if (error)
			return error;
	}
	return 0;
}

static int by_slot(const void *left, const void *right)
{
	const struct stub *a = left, *b = right;

	return a->slot < b->slot ? -1 : a->slot > b->slot;
}

static int by_address(const void *left, const void *right)
{
	const struct stub *a = left, *b = right;

	return a->address < b->address ? -1 : a->address > b->address;
}

/* The first stub, in the order of slots, whose slot is not below SLOT. */
static struct stub *find_slot(const struct reading *reading, uint64_t slot)
{
	return reading->stubs + array_partition(reading->count, i, reading->stubs[i].slot < slot);
}

/* --- relocations of the slots ----------------------------------------------------------- */

static void scan_relocation(struct reading *reading, const Elf64_Rela *relocation, bool has_symbols)
{
	uint32_t type = ELF64_R_TYPE(relocation->r_info), symbol = 0;
	uint64_t resolver = 0;

	if (type == R_X86_64_IRELATIVE)
		resolver = (uint64_t)relocation->r_addend;
	else if (has_symbols && !relocation->r_addend &&
		 (type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT))
		symbol = ELF64_R_SYM(relocation->r_info);
	if (!resolver && !symbol)
		return;
	for (struct stub *stub = find_slot(reading, relocation->r_offset);
	     stub < reading->stubs + reading->count && stub->slot == relocation->r_offset; stub++) {
		if (stub->resolver || stub->symbol)
			return; /* an earlier relocation of the slot was found */
		stub->resolver = resolver;
		stub->symbol = symbol;
		reading->unresolved--;
	}
}

static int scan_relocations(struct reading *reading, const Elf64_Shdr *section)
{
	const uint64_t count = section->sh_size / sizeof(Elf64_Rela);
	uint64_t first = count > RELOCATIONS_MAX ? count - RELOCATIONS_MAX : 0;
	bool has_symbols = reading->symbols_number && section->sh_link == reading->symbols_number;
	Elf64_Rela entries[ENTRIES_AT_ONCE];

	for (; reading->unresolved && first < count; first += ENTRIES_AT_ONCE) {
		uint64_t here = count - first < ENTRIES_AT_ONCE ? count - first : ENTRIES_AT_ONCE;
		int error = read_at(reading, section->sh_offset + first * sizeof(*entries), entries,
				    here * sizeof(*entries));

		if (error)
			return error;
		for (uint64_t i = 0; i < here; i++)
			scan_relocation(reading, &entries[i], has_symbols);
	}
	return 0;
}

/* False if SYMBOL is not an IFUNC resolver. */
static bool match_resolver(struct reading *reading, const Elf64_Sym *symbol, uint32_t number)
{
	bool global = ELF64_ST_BIND(symbol->st_info) == STB_GLOBAL;

	if (ELF64_ST_TYPE(symbol->st_info) != STT_GNU_IFUNC || symbol->st_shndx == SHN_UNDEF)
		return false;
	for (struct stub *stub = reading->stubs; stub < reading->stubs + reading->count; stub++)
		if (stub->resolver && stub->resolver == symbol->st_value &&
		    (!stub->symbol || (global && !stub->global))) {
			stub->symbol = number;
			stub->global = global;
		}
	return true;
}

static int scan_resolvers(struct reading *reading)
{
	uint64_t count = reading->symbols.sh_size / sizeof(Elf64_Sym);
	Elf64_Sym symbols[ENTRIES_AT_ONCE];
	unsigned int resolvers = 0;

	count = count < SYMBOLS_MAX ? count : SYMBOLS_MAX;
	for (uint64_t first = 0; first < count; first += ENTRIES_AT_ONCE) {
		uint64_t here = count - first < ENTRIES_AT_ONCE ? count - first : ENTRIES_AT_ONCE;
		int error = read_at(reading, reading->symbols.sh_offset + first * sizeof(*symbols),
				    symbols, here * sizeof(*symbols));

		if (error)
			return error;
		for (uint64_t i = 0; i < here && resolvers < RESOLVERS_MAX; i++)
			resolvers += match_resolver(reading, &symbols[i], (uint32_t)(first + i));
	}
	return 0;
}

static bool has_resolvers(const struct reading *reading)
{
	for (size_t i = 0; i < reading->count; i++)
		if (reading->stubs[i].resolver)
			return true;
	return false;
}

/* From the last section on, as it has the lazily bound slots. */
static int find_symbols(struct reading *reading)
{
	int error = 0;

	qsort(reading->stubs, reading->count, sizeof(*reading->stubs), by_slot);
	reading->unresolved = reading->count;
	for (unsigned int i = reading->relocations.count; !error && i > 0; i--)
		error = scan_relocations(reading, &reading->relocations.of[i - 1]);
	if (!error && has_resolvers(reading))
		error = scan_resolvers(reading);
	return error;
}

/* --- names --------------------------------------------------------------------- */

/* NAME is empty if there is none or it is too long. */
static int read_name(struct reading *reading, uint32_t offset, char name[NAME_SIZE_MAX])
{
	uint64_t left = offset < reading->strings.sh_size ? reading->strings.sh_size - offset : 0;

	left = left < NAME_SIZE_MAX ? left : NAME_SIZE_MAX;
	for (uint64_t done = 0; done < left; done += NAME_AT_ONCE) {
		size_t size = left - done < NAME_AT_ONCE ? (size_t)(left - done) : NAME_AT_ONCE;
		int error = read_at(reading, reading->strings.sh_offset + offset + done,
				    name + done, size);

		reading->names_read += size;
		if (error)
			return error;
		if (memchr(name + done, '\0', size))
			return 0;
	}
	name[0] = '\0';
	return 0;
}

/* Names of C++ and Rust that demanglers accept. */
static bool is_mangled(const char *name)
{
	return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R');
}

static int add_name(struct reading *reading, const struct stub *stub, struct elf_stubs *stubs)
{
	char name[NAME_SIZE_MAX], whole[NAME_SIZE_MAX + sizeof("<@plt>")];
	Elf64_Sym symbol;
	int error;

	if (!stub->symbol || stub->symbol >= reading->symbols.sh_size / sizeof(symbol))
		return 0;
	error = read_at(reading, reading->symbols.sh_offset + stub->symbol * sizeof(symbol),
			&symbol, sizeof(symbol));
	if (!error)
		error = read_name(reading, symbol.st_name, name);
	if (error || !*name)
		return error;
	snprintf(whole, sizeof(whole), is_mangled(name) ? "<%s@plt>" : "%s@plt", name);
	return elf_stubs_add(stubs, stub->address, stub->size, whole);
}

static int add_names(struct reading *reading, struct elf_stubs *stubs)
{
	int error = 0;

	if (reading->count)
		qsort(reading->stubs, reading->count, sizeof(*reading->stubs), by_address);
	for (size_t i = 0; !error && i < reading->count && reading->names_read < NAMES_READ_MAX;
	     i++)
		error = add_name(reading, &reading->stubs[i], stubs);
	return error == -EFBIG ? 0 : error;
}

int elf_stubs_find(const struct elf_source *file, struct elf_stubs *stubs)
{
	struct reading reading = { .source = file };
	int error = open_file(&reading);

	*stubs = (struct elf_stubs){ 0 };
	for (unsigned int i = 0; !error && i < reading.code.count; i++)
		error = scan_code(&reading, &reading.code.of[i]);
	if (!error && reading.count)
		error = find_symbols(&reading);
	if (!error)
		error = add_names(&reading, stubs);
	free(reading.stubs);
	if (error)
		elf_stubs_free(stubs);
	return error;
}

int elf_stubs_add(struct elf_stubs *stubs, uint64_t address, uint64_t size, const char *name)
{
	size_t before = stubs->size ? stubs->size : 1, length = strlen(name) + 1;

	if (stubs->count >= ELF_STUBS_MAX || length > ELF_STUBS_NAMES_MAX - before)
		return -EFBIG;
	if (array_reserve(&stubs->strings, &stubs->strings_capacity, before + length) ||
	    array_reserve(&stubs->symbols, &stubs->symbols_capacity, stubs->count + 1))
		return -ENOMEM;
	stubs->strings[0] = '\0';
	memcpy(stubs->strings + before, name, length);
	stubs->size = (uint32_t)(before + length);
	stubs->symbols[stubs->count++] = (Elf64_Sym){ .st_name = (uint32_t)before,
						      .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
						      .st_shndx = ELF_STUBS_SECTION,
						      .st_value = address,
						      .st_size = size };
	return 0;
}

/* True if the combined table is valid and small enough. */
static bool fits(const struct elf_stubs *stubs, const struct elf_tables *tables)
{
	uint64_t size = (uint64_t)tables->head.symbols + tables->head.strings + stubs->size +
			stubs->count * sizeof(*stubs->symbols);

	return !(tables->head.symbols % sizeof(*stubs->symbols)) &&
	       size <= AGENT_TABLE_MAX - sizeof(*tables);
}

void elf_stubs_append(struct elf_stubs *stubs, struct elf_tables *tables)
{
	if (!fits(stubs, tables))
		elf_stubs_free(stubs);
	for (uint32_t i = 0; i < stubs->count; i++)
		stubs->symbols[i].st_name += tables->head.strings;
	tables->head.symbols += stubs->count * (uint32_t)sizeof(*stubs->symbols);
	tables->head.strings += stubs->size;
}

void elf_stubs_free(struct elf_stubs *stubs)
{
	free(stubs->symbols);
	free(stubs->strings);
	*stubs = (struct elf_stubs){ 0 };
}
