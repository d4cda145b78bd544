/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorted symbol table of one address space, filled from kallsyms, an ELF file or a module. Built on
 * one thread, then read-only on any.
 */
#ifndef KVMSCOPE_GUEST_SYMBOL_TABLE_H
#define KVMSCOPE_GUEST_SYMBOL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbols;

struct symbol {
	uint64_t start; /* GVA */
	/*
	 * First address after it. The start of the next symbol where the size is unknown;
	 * UINT64_MAX if it extends to the last address.
	 */
	uint64_t end;
	const char *name;   /* owned by the table */
	const char *module; /* owned by the table; NULL for the main image */
	char type;          /* as in /proc/kallsyms: 't', 'T', 'd', ... */
};

struct symbols *symbols_new(void); /* NULL without memory */
/* NULL is a no-op. */
void symbols_free(struct symbols *symbols);

/*
 * Adds a symbol; SIZE is 0 if unknown. Copies NAME and MODULE (may be NULL). Not after
 * symbols_finish(). 0 or -ENOMEM.
 */
int symbols_add(struct symbols *symbols, uint64_t start, uint64_t size, char type, const char *name,
		const char *module);
/* Removes all symbols but the first COUNT, at most symbols_count(). Not after symbols_finish(). */
void symbols_truncate(struct symbols *symbols, size_t count);
/* Sorts the table, which can then be read. */
void symbols_finish(struct symbols *symbols);
/* Allows symbols_add() to a finished table without readers, until the next symbols_finish(). */
void symbols_reopen(struct symbols *symbols);

/*
 * Finds the symbol that contains ADDRESS, preferring a global name to a local one at the same
 * address. False: none; *SYMBOL is unchanged.
 */
bool symbols_find(const struct symbols *symbols, uint64_t address, struct symbol *symbol);
/* The first symbol named NAME in the main image. */
bool symbols_find_name(const struct symbols *symbols, const char *name, struct symbol *symbol);
/* The first by address in any module. */
bool symbols_find_name_in_modules(const struct symbols *symbols, const char *name,
				  struct symbol *symbol);
size_t symbols_count(const struct symbols *symbols);
/* The symbol at INDEX in address order; INDEX is below symbols_count(). */
void symbols_at(const struct symbols *symbols, size_t index, struct symbol *symbol);

#endif
