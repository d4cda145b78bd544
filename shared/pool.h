/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that lives as long as its profile, names that are stored once and
 * are safe to show, and a hash table for whatever is stored once. One thread
 * at a time; nothing here sets an error message: all that can fail is memory.
 */
#ifndef KVMSCOPE_SHARED_POOL_H
#define KVMSCOPE_SHARED_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open addressing over a power of two; zeroed memory is an empty table. */
struct hash_table {
	struct hash_table_slot {
		uint64_t hash;
		void *item; /* NULL: free */
	} * slots;
	size_t count, capacity;
};

typedef bool hash_table_equal(const void *item, const void *key);

/* The item of HASH for which EQUAL(item, KEY) holds, or NULL. */
void *hash_table_find(const struct hash_table *table, uint64_t hash, hash_table_equal *equal,
		      const void *key);
/* ITEM must not be there yet. 0 or -ENOMEM. */
int hash_table_add(struct hash_table *table, uint64_t hash, void *item);
void hash_table_free(struct hash_table *table); /* not the items */

/* Mixes VALUE into HASH; good in all bits. */
static inline uint64_t hash_mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 29);
}

struct pool {
	struct pool_block *blocks;
	struct hash_table strings;
};

/* Zeroed bytes, aligned to 8; NULL without memory. */
void *pool_alloc(struct pool *pool, size_t size);

/*
 * The one copy of TEXT in the pool: equal texts give equal pointers. Bytes
 * that could move a terminal's cursor, end a line or turn the direction of
 * writing are replaced by '?', and so is what is no UTF-8: names come from
 * the guest. NULL without memory.
 */
const char *pool_string(struct pool *pool, const char *text);

/* The same for a text of one's own, in place; it never grows. */
void make_showable(char *text);

/* Frees what it holds; zeroed, it holds nothing. */
void pool_free(struct pool *pool);

#endif
