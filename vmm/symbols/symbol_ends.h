/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a symbol ends that has no size, as assembly makes them: where the next one begins, and with
 * its section at the latest, for the code behind may be nobody's (the stubs of a PLT behind _init).
 * Any one thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_SYMBOL_ENDS_H
#define KVMSCOPE_SYMBOLS_SYMBOL_ENDS_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

struct symbol_place;

/* Of one table. */
struct symbol_ends {
	struct symbol_place *places;
	size_t count;
	struct span sections;
};

/*
 * Of MOST symbols at most, for each of which it takes less memory than that itself. SECTIONS, of
 * struct agent_section, is the caller's; what follows the last whole one is none. -ENOMEM: ENDS is
 * empty.
 */
int symbol_ends_begin(struct symbol_ends *ends, size_t most, struct span sections);

/* Each of them, in any order. */
void symbol_ends_add(struct symbol_ends *ends, const Elf64_Sym *symbol);

/* Behind the last one. */
void symbol_ends_finish(struct symbol_ends *ends);

/*
 * SYMBOL's size, its own where it has one. 0: it is not known; or another one at the same address
 * knows its own, and is the better name.
 */
uint64_t symbol_ends_size(const struct symbol_ends *ends, const Elf64_Sym *symbol);

/* Frees what it holds; zeroed, it holds nothing. */
void symbol_ends_free(struct symbol_ends *ends);

#endif
