/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the stubs in an ELF file's procedure linkage tables, which no table of symbols has:
 * NAME@plt, as perf, gdb and objdump call them. Which function a stub leads to is what its own code
 * says, the slot that it jumps through, and the relocation that fills that slot; never its place in
 * the table, which linkers do not keep to. (psABI for x86-64, 5.2 and 13.2; binutils'
 * elf_x86_64_get_synthetic_symtab.) Believes nothing of the file.
 */
#ifndef KVMSCOPE_SHARED_ELF_STUBS_H
#define KVMSCOPE_SHARED_ELF_STUBS_H

#include <elf.h>
#include <stdint.h>

#include "shared/elf_source.h"
#include "shared/elf_tables.h"

/* Of more the last ones have no names, nor those whose names are behind so many bytes. */
#define ELF_STUBS_MAX       8192u
#define ELF_STUBS_NAMES_MAX (512u << 10)

/* In place of the number of a stub's section. */
#define ELF_STUBS_SECTION SHN_LOOS

struct elf_stubs {
	Elf64_Sym *symbols; /* local functions of ELF_STUBS_SECTION; st_name counts from the begin
			       of */
	char *strings;      /* their names, each with its NUL; the first byte is one, too */
	uint32_t count;     /* of symbols */
	uint32_t size;      /* bytes of strings; 0 where there is no symbol */
};

/*
 * Of a 64-bit file for x86-64, by its sections: with lazy binding and without, with indirect branch
 * tracking
 * (.plt.sec) and without, and those that share a slot with data (.plt.got). Slots that the file
 * itself fills (IRELATIVE) have the name of the function whose resolver the relocation tells; which
 * of its aliases is the first that is global, else the first. A mangled name stands in brackets,
 * <_ZNAME@plt>, as objdump has it: demanglers, perf's too, take one with something behind it for
 * the function itself.
 *
 * 0 and *STUBS, to be freed; it may be empty. -EFAULT: not all that is needed is there; -EINVAL: it
 * is no such file; -ENOMEM; then it is empty, too. Any thread.
 */
int elf_stubs_find(const struct elf_source *file, struct elf_stubs *stubs);

/*
 * Adds the stub at ADDRESS, SIZE bytes, that is called NAME, to *STUBS, which is zeroed or has
 * some. -EFBIG: there are too many; -ENOMEM; then it is as before.
 */
int elf_stubs_add(struct elf_stubs *stubs, uint64_t address, uint64_t size, const char *name);

/*
 * Tells in TABLES of *STUBS behind the symbols and the strings that it tells of: from then on
 * st_name counts from the begin of all those strings. Where that would be no table STUBS is emptied
 * instead.
 */
void elf_stubs_append(struct elf_stubs *stubs, struct elf_tables *tables);

/* Frees what it has; zeroed, it has nothing. */
void elf_stubs_free(struct elf_stubs *stubs);

#endif
