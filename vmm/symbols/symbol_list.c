/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/symbol_list.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/error.h"

#define PAGE 4096ul

int symbol_list_add(struct symbol_list *list, const struct listed_symbol *symbol)
{
	if (array_reserve(&list->symbols, &list->capacity, list->count + 1))
		return error_set(-ENOMEM, "no memory for %zu symbols", list->count + 1);
	list->symbols[list->count] = *symbol;
	list->symbols[list->count].order = list->count;
	list->symbols[list->count].length = strlen(symbol->name);
	list->symbols[list->count].underscores = strspn(symbol->name, "_");
	list->count++;
	return 0;
}

void symbol_list_free(struct symbol_list *list)
{
	free(list->symbols);
	*list = (struct symbol_list){ 0 };
}

static int by_address_and_order(const void *left, const void *right)
{
	const struct listed_symbol *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->order < b->order ? -1 : 1;
}

static bool is_weak(const struct listed_symbol *symbol)
{
	return toupper((unsigned char)symbol->type) == 'W' ||
	       toupper((unsigned char)symbol->type) == 'V';
}

static bool is_global(const struct listed_symbol *symbol)
{
	return isupper((unsigned char)symbol->type) && !is_weak(symbol);
}

/* The "SyS" aliases of system calls are never shown (arch__choose_best_symbol). */
static bool is_system_call_alias(const char *name)
{
	return !strncmp(name, "SyS", 3) || !strncmp(name, "compat_SyS", 10);
}

/* For two symbols of known sizes at one address, A before B in the file: true if A is shown. */
static bool first_is_better(const struct listed_symbol *a, const struct listed_symbol *b)
{
	if (is_weak(a) != is_weak(b))
		return is_weak(b);
	if (is_global(a) != is_global(b))
		return is_global(a);
	if (a->underscores != b->underscores)
		return a->underscores < b->underscores;
	if (a->length != b->length)
		return a->length > b->length;
	return !is_system_call_alias(a->name);
}

/* The symbol to show among FIRST to END, which share an address. Without sizes perf shows the last
 * one, because only that one gets a size from the next symbol. */
static const struct listed_symbol *choose(const struct listed_symbol *first,
					  const struct listed_symbol *end)
{
	const struct listed_symbol *best = first;

	for (const struct listed_symbol *next = first + 1; next < end; next++)
		if (!next->size && !best->size)
			best = next;
		else if (next->size && (!best->size || !first_is_better(best, next)))
			best = next;
	return best;
}

static uint64_t size_before(const struct listed_symbol *symbol, const struct listed_symbol *next)
{
	uint64_t end = symbol->limit ? symbol->limit : (symbol->start + 2 * PAGE - 1) / PAGE * PAGE;

	if (symbol->size)
		return symbol->size;
	if (next && !symbol->module == !next->module && (!symbol->limit || next->start < end))
		end = next->start;
	return end > symbol->start ? end - symbol->start : 1;
}

static int fill(const struct symbol_list *list, struct symbols *symbols)
{
	const struct listed_symbol *end = list->symbols + list->count;

	for (const struct listed_symbol *first = list->symbols, *next; first < end; first = next) {
		const struct listed_symbol *chosen;

		for (next = first + 1; next < end && next->start == first->start;)
			next++;
		chosen = choose(first, next);
		if (symbols_add(symbols, chosen->start,
				size_before(chosen, next < end ? next : NULL), chosen->type,
				chosen->name, chosen->module))
			return -ENOMEM;
	}
	symbols_finish(symbols);
	return 0;
}

int symbol_list_finish(struct symbol_list *list, struct symbols **symbols)
{
	struct symbols *table = symbols_new();
	int error;

	if (list->count)
		qsort(list->symbols, list->count, sizeof(*list->symbols), by_address_and_order);
	error = table ? fill(list, table) : -ENOMEM;
	if (error) {
		symbols_free(table);
		error = error_set(-ENOMEM, "no memory for %zu symbols", list->count);
	} else {
		*symbols = table;
	}
	symbol_list_free(list);
	return error;
}
