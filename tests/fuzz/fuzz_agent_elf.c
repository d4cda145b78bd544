/* SPDX-License-Identifier: Apache-2.0 */
/* The ELF files of a guest, as the guest's agent and introspection read them: build id, and where the symbols
 * are. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest-agent/build_id.c"
#include "shared/elf_tables.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_file(void *context, uint64_t offset, void *to, size_t size)
{
	return offset <= INT64_MAX && pread(*(int *)context, to, size, (off_t)offset) == (ssize_t)size
		       ? 0
		       : -EFAULT;
}

static void check(int error, const struct elf_tables *tables)
{
	if (!error && (tables->head.segments > AGENT_SEGMENTS_MAX || tables->head.symbols > AGENT_TABLE_MAX ||
		       tables->head.strings > AGENT_TABLE_MAX || tables->section_count > AGENT_SECTIONS_MAX))
		abort();
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
	close(fd);
	return 0;
}
