/* SPDX-License-Identifier: Apache-2.0 */
/* Function names out of ELF files: programs, libraries, vmlinux. The files may be hostile; libelf
 * checks them. */
#ifndef KVMSCOPE_SYMBOLS_ELF_SYMBOLS_H
#define KVMSCOPE_SYMBOLS_ELF_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/symbol_table.h"
#include "vmm/symbols/elf_file.h"
#include "vmm/symbols/symbol_file.h"

enum elf_symbols_addresses {
	ELF_FILE_OFFSETS,      /* of programs and libraries, as mappings of files have them */
	ELF_VIRTUAL_ADDRESSES, /* of vmlinux */
};

/*
 * Loads .symtab, or .dynsym where there is none, and the names of the stubs of PLTs
 * (shared/elf_stubs.h). A symbol without a size reaches up to the next one and ends with its
 * section; in .dynsym, which leaves functions out, it is none. With BUILD_ID_SIZE not 0 the file
 * must carry that build id (perf's cache pads shorter ones with zeroes), else -ESTALE: names of
 * another build would be wrong names. -ENODATA: the file is stripped of all symbols, and has no
 * such stubs; -EINVAL: it is no ELF file. Any thread.
 */
int elf_symbols_load(struct symbols **symbols, const char *path,
		     enum elf_symbols_addresses addresses, const uint8_t *build_id,
		     size_t build_id_size);

/*
 * The same with file offsets for a stripped file RUNTIME whose symbols stand
 * in a file DEBUG of their own: that one no longer tells where in the file
 * addresses lie.
 */
int elf_symbols_load_separate(struct symbols **symbols, const char *debug, const char *runtime,
			      const uint8_t *build_id, size_t build_id_size);

struct elf_kind {
	bool relocatable;  /* ET_REL */
	bool symbols_only; /* it was made of names alone (symbol_file.h), and has no sections of a
			    program */
	bool all;          /* it has a .symtab: not only functions that others may call */
	struct symbol_file_note note; /* what it says of itself; zero: nothing */
};

/* What the file at PATH is; false: it is no ELF file, or can not be read. Any thread. */
bool elf_kind_of(const char *path, struct elf_kind *kind);

/* The build id's size, 0 without one, or a negative errno. BUILD_ID holds ELF_BUILD_ID_MAX bytes.
 */
int elf_build_id(const char *path, uint8_t *build_id);

#endif
