/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/elf_stubs.h"

/* Allocated size for USED bytes: a power of two, or 0. */
static size_t room_for(size_t used)
{
	size_t room = used ? 1024 : 0;

	while (room < used)
		room *= 2;
	return room;
}

/* Makes room for MORE bytes after USED bytes of BLOCK; NULL without memory, then BLOCK is
 * unchanged. */
static void *grow(void *block, size_t used, size_t more)
{
	return room_for(used + more) > room_for(used) ? realloc(block, room_for(used + more))
						      : block;
}

/* Makes room for one more symbol and SIZE bytes of strings. */
static int make_room(struct elf_stubs *stubs, size_t size)
{
	Elf64_Sym *symbols;
	char *strings;

	if (stubs->count >= ELF_STUBS_MAX || size > ELF_STUBS_NAMES_MAX - stubs->size)
		return -EFBIG;
	strings = grow(stubs->strings, stubs->size, size);
	if (!strings)
		return -ENOMEM;
	stubs->strings = strings;
	symbols = grow(stubs->symbols, stubs->count * sizeof(*symbols), sizeof(*symbols));
	if (!symbols)
		return -ENOMEM;
	stubs->symbols = symbols;
	return 0;
}

int elf_stubs_add(struct elf_stubs *stubs, uint64_t address, uint64_t size, const char *name)
{
	size_t before = stubs->size ? stubs->size : 1, length = strlen(name) + 1;
	int error = length < ELF_STUBS_NAMES_MAX ? make_room(stubs, before + length - stubs->size)
						 : -EFBIG;

	if (error)
		return error;
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
