/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inlined functions in arbitrary ELF files, at addresses all over the file: the guest controls its
 * files.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/report/profile_stacks.h"
#include "vmm/symbols/dwarf_inlines.h"
#include "vmm/symbols/symbol_paths.h"

static const struct symbol_sources no_sources; /* only the given path is read */

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct dwarf_function functions[DWARF_INLINES_MAX];
	struct dwarf_inlines *inlines;
	char path[64];
	int fd = memfd_create("elf", MFD_CLOEXEC);
	size_t names = 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (write(fd, input, size) == (ssize_t)size &&
	    !dwarf_inlines_open(&inlines, path, (struct span){ 0 }, &no_sources)) {
		for (uint64_t address = 0; address < 0x8000; address += 13) {
			size_t count = dwarf_inlines_find(inlines, address, address & 1, functions);

			for (size_t i = 0; i < count; i++)
				names += functions[i].name ? strlen(functions[i].name) : 0;
		}
		dwarf_inlines_close(inlines);
	}
	close(fd);
	return names > SIZE_MAX / 2;
}
