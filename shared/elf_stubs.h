/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols for PLT stubs, which are in no symbol table: NAME@plt, as in perf, gdb and objdump. The
 * function of a stub is determined by its code: the slot that it jumps through, and the relocation
 * of that slot; never by its position, because linkers reorder stubs. (psABI for x86-64, 5.2
 * and 13.2; binutils' elf_x86_64_get_synthetic_symtab.) The file is untrusted.
 */
#ifndef KVMSCOPE_SHARED_ELF_STUBS_H
#define KVMSCOPE_SHARED_ELF_STUBS_H

#include <elf.h>
#include <stdint.h>

#include "shared/elf_source.h"
#include "shared/elf_tables.h"

/* Limits of the number of stubs and the bytes of their names; further stubs stay unsymbolized. */
#define ELF_STUBS_MAX       8192u
#define ELF_STUBS_NAMES_MAX (512u << 10)

/* st_shndx of a stub's symbol. */
#define ELF_STUBS_SECTION SHN_LOOS

struct elf_stubs {
	Elf64_Sym *symbols; /* local functions of ELF_STUBS_SECTION; st_name is an offset in */
	char *strings;      /* their NUL-terminated names, after a NUL */
	uint32_t count;     /* of symbols */
	uint32_t size;      /* bytes of strings; 0 without symbols */
	size_t symbols_capacity, strings_capacity;
};

/* Finds the stubs of a 64-bit file for x86-64 by its sections: with and without lazy binding and
 * indirect branch tracking (.plt.sec), and those that share a slot with data (.plt.got). IRELATIVE
 * slots get the name of the function whose resolver the relocation has: its first global alias,
 * else the first alias. Mangled names are put in brackets, <_ZNAME@plt>, as by objdump, because
 * demanglers, including perf's, would drop the suffix. 0 with *STUBS, which the caller frees and
 * which may be empty. On -EFAULT (parts unavailable), -EINVAL (not such a file) and -ENOMEM it is
 * empty. Any thread.
 */
int elf_stubs_find(const struct elf_source *file, struct elf_stubs *stubs);

/* Adds a stub of SIZE bytes at ADDRESS. On -EFBIG (too many) and -ENOMEM *STUBS is unchanged.
 * Zeroed memory is an empty list.
 */
int elf_stubs_add(struct elf_stubs *stubs, uint64_t address, uint64_t size, const char *name);

/* Extends the sizes in TABLES by the symbols and strings of *STUBS, which follow those of the file,
 * and makes st_name relative to all strings. Empties STUBS if the result would be too large.
 */
void elf_stubs_append(struct elf_stubs *stubs, struct elf_tables *tables);

/* Frees the list's memory and leaves it empty. */
void elf_stubs_free(struct elf_stubs *stubs);

#endif
