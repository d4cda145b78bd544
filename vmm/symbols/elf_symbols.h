/* SPDX-License-Identifier: Apache-2.0 */
/* Function symbols of ELF files: programs, libraries, vmlinux. Files may be hostile; libelf checks
 * them. Any thread. */
#ifndef KVMSCOPE_SYMBOLS_ELF_SYMBOLS_H
#define KVMSCOPE_SYMBOLS_ELF_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/guest/symbol_table.h"
#include "vmm/symbols/elf_file.h"
#include "vmm/symbols/symbol_file.h"

enum elf_symbols_addresses {
	ELF_FILE_OFFSETS,      /* for programs and libraries, as in mappings */
	ELF_VIRTUAL_ADDRESSES, /* for vmlinux */
};

/*
 * Loads .symtab, or else .dynsym, and symbols for PLT stubs (shared/elf_stubs.h). A symbol without
 * a size ends at the next one or with its section; in .dynsym, which lacks local functions, it is
 * left out. If BUILD_ID is not empty, the file must have it (perf pads short ones with
 * zeros), else -ESTALE: another build has other symbols. -ENODATA: the file is stripped and has no
 * stubs; -EFBIG: its table is too large; -EINVAL: not an ELF file.
 */
int elf_symbols_load(struct symbols **symbols, const char *path,
		     enum elf_symbols_addresses addresses, struct span build_id);

/* The same for an open file, without a check of its build id. */
int elf_symbols_read(struct symbols **symbols, const struct elf_file *file,
		     enum elf_symbols_addresses addresses);

/* The same with file offsets for the stripped file RUNTIME and the separate file DEBUG with its
 * symbols, whose own segments do not give offsets. */
int elf_symbols_load_separate(struct symbols **symbols, const char *debug, const char *runtime,
			      struct span build_id);

struct elf_kind {
	bool relocatable;  /* ET_REL */
	bool symbols_only; /* a symbol file (symbol_file.h), without a program's sections */
	bool all;          /* it has .symtab: not only exported functions */
	struct symbol_file_note note; /* zero: none */
};

/* Describes the file at PATH; false: it is not an ELF file, or cannot be read. */
bool elf_kind_of(const char *path, struct elf_kind *kind);

/* The build id's size, 0 without one, or a negative errno. BUILD_ID holds ELF_BUILD_ID_MAX bytes.
 */
int elf_build_id(const char *path, uint8_t *build_id);

#endif
