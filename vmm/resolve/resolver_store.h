/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the parts of the resolver share, charged to the guest's account, and the images.
 * Zeroed: empty, and without a limit. Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_STORE_H
#define KVMSCOPE_RESOLVE_RESOLVER_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_account.h"

/* A hash table of items that begin with their node. It uses chains, so that removing is cheap and
 * items never move. Zeroed: empty. */
struct resolver_table {
	struct resolver_node {
		struct resolver_node *next; /* in the same chain, the newest first */
		uint64_t hash;
	} * *chains;
	size_t count, capacity; /* of items; of chains, a power of two */
};

struct resolver_store {
	struct guest_account *account; /* the guest's; allocations beyond its limit fail */
	struct resolver_table images;  /* struct resolver_image */
	size_t bytes;                  /* allocated now */
};

/* Zeroed bytes; NULL: no memory, or the guest's limit. */
void *resolver_store_alloc(struct resolver_store *store, size_t size);
/* Grows ITEMS (NULL: none yet) from COUNT to LARGER items of ITEM_SIZE bytes. NULL as above, with
 * the items unchanged. */
void *resolver_store_resize(struct resolver_store *store, void *items, size_t item_size,
			    size_t count, size_t larger);
/* SIZE is that of the allocation. NULL is a no-op. */
void resolver_store_free(struct resolver_store *store, void *bytes, size_t size);

/* Adds a new item of SIZE bytes to TABLE, zeroed except for its node; NULL as above. */
void *resolver_store_add(struct resolver_store *store, struct resolver_table *table, uint64_t hash,
			 size_t size);
/* Removes the item that begins with NODE from TABLE and frees it. */
void resolver_store_remove(struct resolver_store *store, struct resolver_table *table,
			   struct resolver_node *node, size_t size);

/* The newest node with HASH, or NULL; resolver_table_next() returns the others. */
struct resolver_node *resolver_table_first(const struct resolver_table *table, uint64_t hash);
struct resolver_node *resolver_table_next(const struct resolver_node *node);
/* Does not free the items. */
void resolver_table_free(struct resolver_table *table, struct guest_account *account);

#endif
