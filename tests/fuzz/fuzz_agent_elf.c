/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: an ELF file of a guest. The guest agent and introspection read its build ID, its symbol
 * tables and the names of its PLT stubs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest-agent/mapped_build_id.c"
#include "shared/elf_stubs.h"
#include "shared/elf_tables.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_file(void *context, uint64_t offset, void *to, size_t size)
{
	return offset <= INT64_MAX &&
			       pread(*(int *)context, to, size, (off_t)offset) == (ssize_t)size
		       ? 0
		       : -EFAULT;
}

static void check(int error, const struct elf_tables *tables)
{
	if (!error &&
	    (tables->head.segments > AGENT_SEGMENTS_MAX || tables->head.symbols > AGENT_TABLE_MAX ||
	     tables->head.strings > AGENT_TABLE_MAX || tables->section_count > AGENT_SECTIONS_MAX))
		abort();
}

static void check_stubs(const struct elf_source *source)
{
	struct elf_tables tables = { 0 };
	struct elf_stubs stubs;

	if (elf_stubs_find(source, &stubs) && (stubs.count || stubs.symbols || stubs.strings))
		abort();
	if (stubs.count > ELF_STUBS_MAX || stubs.size > ELF_STUBS_NAMES_MAX)
		abort();
	elf_stubs_append(&stubs, &tables);
	for (uint32_t i = 0; i < stubs.count; i++) {
		const Elf64_Sym *symbol = &stubs.symbols[i];

		if (symbol->st_name >= tables.head.strings || !symbol->st_size ||
		    symbol->st_size > 16 || !strstr(stubs.strings + symbol->st_name, "@plt"))
			abort();
	}
	elf_stubs_free(&stubs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t build_id[BUILD_ID_MAX];
	struct elf_tables tables;
	int fd = memfd_create("elf", 0);
	const struct elf_source source = { .read = read_file, .context = &fd };

	if (write(fd, data, size) != (ssize_t)size)
		abort();
	if (build_id_read(fd, build_id) > sizeof(build_id))
		abort();
	check(elf_tables_find(&source, &tables), &tables);
	check(elf_tables_find_dynamic(&source, &tables), &tables);
	check(elf_tables_find_segments(&source, &tables), &tables);
	check_stubs(&source);
	close(fd);
	return 0;
}
