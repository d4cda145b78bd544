/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a symbol table from a file's symbols. If several symbols have one address, it keeps the
 * one that perf keeps, so that both show the same symbol (tools/perf/util/symbol.c,
 * symbols__fixup_duplicate and choose_best_symbol). One thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_SYMBOL_LIST_H
#define KVMSCOPE_SYMBOLS_SYMBOL_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/symbol_table.h"

struct listed_symbol {
	uint64_t start;
	uint64_t size;      /* 0: up to the next symbol, */
	uint64_t limit;     /* but not beyond LIMIT; 0: the last symbol ends with its page */
	const char *name;   /* not owned: must live until symbol_list_finish() */
	const char *module; /* not owned; NULL for the main image */
	/* Set by symbol_list_add(): position in the file; bytes of the name, and those it begins
	 * with that are underscores. */
	size_t order, length, underscores;
	char type; /* as in /proc/kallsyms */
};

/* Zeroed: empty. */
struct symbol_list {
	struct listed_symbol *symbols;
	size_t count, capacity;
};

/* 0 or -ENOMEM. */
int symbol_list_add(struct symbol_list *list, const struct listed_symbol *symbol);

/*
 * Moves the list into a new table, which the caller frees. Like in perf, the last symbol before a
 * change of module ends with its page if it has no limit. Frees the list, also after an error. 0 or
 * -ENOMEM.
 */
int symbol_list_finish(struct symbol_list *list, struct symbols **symbols);

/* Frees what it holds; zeroed, it holds nothing. */
void symbol_list_free(struct symbol_list *list);

#endif
