/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/installed_symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "vmm/symbols/elf_symbols.h"
#include "vmm/symbols/image_file.h"
#include "vmm/symbols/symbol_paths.h"

static bool is_build(const char *path, struct span build_id)
{
	uint8_t found[ELF_BUILD_ID_MAX];

	return elf_build_id(path, found) == (int)build_id.size &&
	       !memcmp(found, build_id.data, build_id.size);
}

/* -1: not installed. */
static int open_separate(const char *root, struct span build_id)
{
	char path[SYMBOL_PATH_MAX];

	if (!symbol_paths_installed_debug(path, root, build_id) || !is_build(path, build_id))
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

/* A separate file lacks the segments of the original; TABLE has them. */
static bool copy_segments(struct elf_tables *tables, struct span table)
{
	struct agent_symbols head;

	if (!span_copy(table, 0, &head, sizeof(head)) || head.segments > AGENT_SEGMENTS_MAX)
		return false;
	tables->head.segments = head.segments;
	return span_copy(table, sizeof(head), tables->segments,
			 head.segments * sizeof(tables->segments[0]));
}

/* It also lacks the code of the PLT stubs; TABLE has their symbols. */
static void copy_stubs(struct elf_stubs *stubs, struct span table)
{
	uint64_t offset = sizeof(struct agent_symbols);
	struct agent_symbols head;
	struct span symbols, strings;
	Elf64_Sym symbol;
	int error = 0;

	if (!span_copy(table, 0, &head, sizeof(head)))
		return;
	offset += head.segments * sizeof(Elf64_Phdr);
	if (!span_part(table, offset, head.symbols, &symbols) ||
	    !span_part(table, offset + head.symbols, head.strings, &strings))
		return;
	for (offset = 0; !error && span_copy(symbols, offset, &symbol, sizeof(symbol));
	     offset += sizeof(symbol)) {
		const char *name;

		if (symbol.st_shndx != ELF_STUBS_SECTION)
			continue;
		name = span_string(strings, symbol.st_name);
		error = name ? elf_stubs_add(stubs, symbol.st_value, symbol.st_size, name)
			     : -EINVAL;
	}
}

static bool is_stripped(struct span table)
{
	struct agent_symbols head;

	return span_copy(table, 0, &head, sizeof(head)) && head.section == AGENT_SYMBOLS_DYNSYM;
}

bool installed_symbols_exist(const char *root, struct span build_id)
{
	char path[SYMBOL_PATH_MAX];
	struct elf_kind kind;

	return symbol_paths_installed_debug(path, root, build_id) && is_build(path, build_id) &&
	       elf_kind_of(path, &kind) && kind.all;
}

/* Combines the symbols of the separate FILE with the rest of TABLE. */
static bool add_separate(struct bytes *all, struct span table, const struct elf_source *file)
{
	struct elf_stubs stubs = { 0 };
	struct elf_tables tables;
	bool added;

	copy_stubs(&stubs, table);
	added = !elf_tables_find(file, &tables) && tables.head.section == AGENT_SYMBOLS_SYMTAB &&
		copy_segments(&tables, table) && !image_table_read(all, file, &tables, &stubs);
	elf_stubs_free(&stubs);
	return added;
}

bool installed_symbols_add(struct bytes *all, struct span table, const char *root,
			   struct span build_id)
{
	int fd = is_stripped(table) ? open_separate(root, build_id) : -1;
	const struct elf_source file = { .read = elf_file_read_at, .context = &fd };
	bool added;

	*all = (struct bytes){ 0 };
	if (fd < 0)
		return false;
	added = add_separate(all, table, &file);
	close(fd);
	return added;
}
