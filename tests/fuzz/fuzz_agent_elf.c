/* SPDX-License-Identifier: Apache-2.0 */
/* The ELF files of a guest, as the guest's agent reads them: build id, and where the symbols are. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest-agent/build_id.c"
#include "guest-agent/elf_tables.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t build_id[BUILD_ID_MAX];
	struct elf_tables tables;
	int fd = memfd_create("elf", 0);

	if (write(fd, data, size) != (ssize_t)size)
		abort();
	if (build_id_read(fd, build_id) > sizeof(build_id))
		abort();
	if (!elf_tables_find(fd, &tables) &&
	    (tables.head.segments > AGENT_SEGMENTS_MAX || tables.head.symbols > AGENT_TABLE_MAX ||
	     tables.head.strings > AGENT_TABLE_MAX))
		abort();
	close(fd);
	return 0;
}
