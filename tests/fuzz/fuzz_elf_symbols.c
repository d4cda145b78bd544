/* SPDX-License-Identifier: Apache-2.0 */
/* Input: an ELF file: a program, a library, a vmlinux or a symbol file of a guest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/symbols/elf_symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Readers assume names, and ends that are not before the starts. UINT64_MAX is the end of a symbol
 * that extends to the last address. */
static void check(struct symbols *symbols)
{
	struct symbol symbol, found;

	for (size_t i = 0; i < symbols_count(symbols); i++) {
		symbols_at(symbols, i, &symbol);
		if (symbol.end < symbol.start || !strlen(symbol.name))
			abort();
		if (symbols_find(symbols, symbol.start, &found) &&
		    (symbol.start < found.start ||
		     (symbol.start >= found.end && found.end != UINT64_MAX)))
			abort();
	}
	symbols_free(symbols);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct span any = { 0 };
	uint8_t build_id[ELF_BUILD_ID_MAX];
	struct symbols *symbols;
	struct elf_kind kind;
	char path[32];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (elf_build_id(path, build_id) > ELF_BUILD_ID_MAX)
		abort();
	elf_kind_of(path, &kind);
	if (!elf_symbols_load(&symbols, path, ELF_FILE_OFFSETS, any))
		check(symbols);
	if (!elf_symbols_load(&symbols, path, ELF_VIRTUAL_ADDRESSES, any))
		check(symbols);
	if (!elf_symbols_load_separate(&symbols, path, path, any))
		check(symbols);
	close(fd);
	return 0;
}
