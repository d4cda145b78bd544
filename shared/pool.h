/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is freed all at once, and interned strings that are safe to print. One thread at a
 * time; sets no error message: the only failure is lack of memory.
 */
#ifndef KVMSCOPE_SHARED_POOL_H
#define KVMSCOPE_SHARED_POOL_H

#include "shared/hash_table.h"

/* Zeroed memory is an empty pool. */
struct pool {
	struct pool_block *blocks;
	struct hash_table strings;
};

/* Zeroed bytes, aligned to 8; NULL without memory. */
void *pool_alloc(struct pool *pool, size_t size);

/*
 * The only copy of TEXT in the pool, after make_printable(): equal texts give equal pointers. NULL
 * without memory.
 */
const char *pool_string(struct pool *pool, const char *text);

/* Frees all of the pool's memory and leaves it empty. */
void pool_free(struct pool *pool);

#endif
