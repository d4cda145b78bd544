/* SPDX-License-Identifier: Apache-2.0 */
/* Hash table of pointers with open addressing. One thread at a time; sets no error message. */
#ifndef KVMSCOPE_SHARED_HASH_TABLE_H
#define KVMSCOPE_SHARED_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/hash.h"

/* Zeroed memory is an empty table. */
struct hash_table {
	struct hash_table_slot {
		uint64_t hash;
		void *item; /* NULL: free */
	} * slots;
	size_t count, capacity; /* capacity: 0 or a power of two */
};

typedef bool hash_table_equal(const void *item, const void *key);

/* The item with HASH for which EQUAL(item, KEY) holds, or NULL. */
void *hash_table_find(const struct hash_table *table, uint64_t hash, hash_table_equal *equal,
		      const void *key);
/* Adds ITEM, which must not be in the table yet. 0 or -ENOMEM. */
int hash_table_add(struct hash_table *table, uint64_t hash, void *item);
/* Does not free the items. */
void hash_table_free(struct hash_table *table);

#endif
