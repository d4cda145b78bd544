/* SPDX-License-Identifier: Apache-2.0 */
/* Symbol tables of ELF files: both ways find the same ones in this machine's libraries. */
#include "shared/elf_tables.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

#define LIBRARIES "/usr/lib/x86_64-linux-gnu"
#define ALL       40 /* of them are enough */

struct file {
	int fd;
	uint64_t limit; /* bytes from here on are not there */
};

static int read_file(void *context, uint64_t offset, void *to, size_t size)
{
	const struct file *file = context;

	if (offset > file->limit || size > file->limit - offset)
		return -EFAULT;
	return pread(file->fd, to, size, (off_t)offset) == (ssize_t)size ? 0 : -EFAULT;
}

/* If a file has .dynsym only, both ways must find the same table. */
static bool compare(const char *name)
{
	struct elf_tables by_sections, by_dynamic;
	struct file file = { .limit = UINT64_MAX };
	const struct elf_source source = { .read = read_file, .context = &file };
	char path[512];
	bool stripped;

	snprintf(path, sizeof(path), LIBRARIES "/%s", name);
	file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	stripped = file.fd >= 0 && !elf_tables_find(&source, &by_sections) &&
		   by_sections.head.section == AGENT_SYMBOLS_DYNSYM;
	if (stripped) {
		CHECK_EQUAL(elf_tables_find_dynamic(&source, &by_dynamic), 0);
		CHECK_EQUAL(by_dynamic.symbols, by_sections.symbols);
		CHECK_EQUAL(by_dynamic.head.symbols, by_sections.head.symbols);
		CHECK_EQUAL(by_dynamic.strings, by_sections.strings);
		CHECK_EQUAL(by_dynamic.head.strings, by_sections.head.strings);
	}
	if (file.fd >= 0)
		close(file.fd);
	return stripped;
}

TEST(elf_tables, of_libraries_are_the_same_by_sections_and_by_the_dynamic_section)
{
	DIR *directory = opendir(LIBRARIES);
	const struct dirent *entry;
	unsigned int compared = 0;

	REQUIRE(directory);
	while (compared < ALL && (entry = readdir(directory)))
		compared += strstr(entry->d_name, ".so.") && compare(entry->d_name);
	closedir(directory);
	CHECK_EQUAL(compared, ALL);
	CHECK(compare("libc.so.6"));
}

/* The section headers are at its end. */
TEST(elf_tables, of_a_file_that_is_there_in_part_are_those_of_the_dynamic_section)
{
	struct elf_tables tables;
	struct file file = { .fd = open("build/rig/remap/alpha", O_RDONLY | O_CLOEXEC),
			     .limit = UINT64_MAX };
	const struct elf_source source = { .read = read_file, .context = &file };

	REQUIRE(file.fd >= 0);
	CHECK_EQUAL(elf_tables_find(&source, &tables), 0);
	CHECK_EQUAL(tables.head.section, AGENT_SYMBOLS_SYMTAB);
	file.limit = 0x3000;
	CHECK_EQUAL(elf_tables_find(&source, &tables), -EFAULT);
	CHECK_EQUAL(elf_tables_find_dynamic(&source, &tables), 0);
	CHECK_EQUAL(tables.head.section, AGENT_SYMBOLS_DYNSYM);
	CHECK_EQUAL(tables.head.symbols, 2 * sizeof(Elf64_Sym));
	file.limit = 0x2000;
	CHECK_EQUAL(elf_tables_find_dynamic(&source, &tables), -EFAULT);
	CHECK_EQUAL(elf_tables_find_segments(&source, &tables), 0);
	CHECK(tables.head.segments > 0);
	CHECK_EQUAL(tables.head.symbols, 0);
	close(file.fd);
}

TEST(elf_tables, of_a_static_program_has_no_dynamic_section)
{
	Elf64_Ehdr header;
	struct elf_tables tables;
	struct file file = { .fd = open("build/rig/remap/one", O_RDONLY | O_CLOEXEC),
			     .limit = UINT64_MAX };
	const struct elf_source source = { .read = read_file, .context = &file };

	REQUIRE(file.fd >= 0);
	CHECK_EQUAL(elf_tables_find(&source, &tables), 0);
	CHECK_EQUAL(tables.head.section, AGENT_SYMBOLS_SYMTAB);
	/* Its entry is in the section that has its code. */
	REQUIRE_EQUAL(tables.section_count, 1);
	CHECK_EQUAL(pread(file.fd, &header, sizeof(header), 0), sizeof(header));
	CHECK(header.e_entry - tables.sections[0].start < tables.sections[0].size);
	CHECK_EQUAL(elf_tables_find_dynamic(&source, &tables), -ENODATA);
	CHECK_EQUAL(tables.section_count, 0);
	close(file.fd);
}
