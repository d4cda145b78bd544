/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sorted table of symbols of one address space: what kallsyms, an ELF file
 * or a module gave. Built once on one thread, then read-only on any.
 */
#ifndef KVMSCOPE_GUEST_SYMBOL_TABLE_H
#define KVMSCOPE_GUEST_SYMBOL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbols;

struct symbol {
	uint64_t start; /* GVA */
	/* First address behind it, the next symbol's start where no size is known; UINT64_MAX where
	 * it has the last. */
	uint64_t end;
	const char *name;   /* owned by the table */
	const char *module; /* owned by the table; NULL for the main image */
	char type;          /* as in /proc/kallsyms: 't', 'T', 'd', ... */
};

struct symbols *symbols_new(void); /* NULL without memory */
/* NULL is a no-op. */
void symbols_free(struct symbols *symbols);

/*
 * Adds a symbol; SIZE 0 where it is not known. NAME and MODULE (may be NULL)
 * are copied. Not after symbols_finish(). 0 or -ENOMEM.
 */
int symbols_add(struct symbols *symbols, uint64_t start, uint64_t size, char type, const char *name,
		const char *module);

/* Forgets all symbols but the first COUNT, of symbols_count() or fewer. Not after symbols_finish().
 */
void symbols_truncate(struct symbols *symbols, size_t count);

/* Sorts; from here on the table may be read. 0 or -ENOMEM. */
int symbols_finish(struct symbols *symbols);

/* Lets symbols be added to a finished table, which has no readers, until symbols_finish() is called
 * again. */
void symbols_reopen(struct symbols *symbols);

/* The symbol that ADDRESS lies in. False: none; *SYMBOL is then left alone. Prefers a global name
 * over a local one at the same address. */
bool symbols_find(const struct symbols *symbols, uint64_t address, struct symbol *symbol);

/* The first symbol named NAME in the main image. */
bool symbols_find_name(const struct symbols *symbols, const char *name, struct symbol *symbol);
/* The first, by address, in any module. */
bool symbols_find_name_in_modules(const struct symbols *symbols, const char *name,
				  struct symbol *symbol);

size_t symbols_count(const struct symbols *symbols);
/* The INDEXth symbol by address; INDEX below symbols_count(). */
void symbols_at(const struct symbols *symbols, size_t index, struct symbol *symbol);

#endif
