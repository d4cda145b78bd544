/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a copy of /proc/kallsyms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/symbols/kallsyms_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each symbol must be found at its own start. */
static void check(const struct symbols *symbols)
{
	struct symbol symbol, found;

	for (size_t i = 0; i < symbols_count(symbols); i++) {
		symbols_at(symbols, i, &symbol);
		if (!symbols_find(symbols, symbol.start, &found) || found.start != symbol.start ||
		    !strlen(found.name))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbols *symbols;
	char path[32];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!kallsyms_file_load(&symbols, path)) {
		check(symbols);
		symbols_free(symbols);
	}
	close(fd);
	return 0;
}
