/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols on their way from a file into a table: where several share an
 * address, the one is kept that perf keeps, so that both give it one name
 * (tools/perf/util/symbol.c, symbols__fixup_duplicate and choose_best_symbol).
 */
#ifndef KVMSCOPE_SYMBOLS_SYMBOL_LIST_H
#define KVMSCOPE_SYMBOLS_SYMBOL_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/symbol_table.h"

struct listed_symbol {
	uint64_t start;
	uint64_t size;      /* 0 where it is not known: then it reaches up to the next one, */
	uint64_t limit;     /* and ends here at the latest; 0: with its page, if it is the last */
	const char *name;   /* not owned: must live until symbol_list_finish() */
	const char *module; /* not owned, NULL for the main image */
	size_t order;       /* set by symbol_list_add(): the place in the file */
	char type;          /* as in /proc/kallsyms */
};

/* Zeroed memory is an empty list. One thread at a time. */
struct symbol_list {
	struct listed_symbol *symbols;
	size_t count, capacity;
};

/* 0 or -ENOMEM. */
int symbol_list_add(struct symbol_list *list, const struct listed_symbol *symbol);

/*
 * Puts the list into a new table of the caller's. The last symbol before a
 * change of module ends with its page, as perf has it, where it has no limit. Leaves the list empty
 * and freed, also after an error. 0 or -ENOMEM.
 */
int symbol_list_finish(struct symbol_list *list, struct symbols **symbols);

/* Frees what it holds; zeroed, it holds nothing. */
void symbol_list_free(struct symbol_list *list);

#endif
