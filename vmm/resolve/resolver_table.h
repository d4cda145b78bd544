/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table of items that contain their node. It uses chains, so that removing is cheap and
 * items never move. Zeroed memory is an empty table. One thread at a time.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_TABLE_H
#define KVMSCOPE_RESOLVE_RESOLVER_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_account.h"

struct resolver_node {
	struct resolver_node *next; /* in the same chain, the newest first */
	uint64_t hash;
};

struct resolver_table {
	struct resolver_node **chains;
	size_t count, capacity; /* of items; of chains, a power of two */
};

/* The newest node with HASH, or NULL; resolver_table_next() returns the others. */
struct resolver_node *resolver_table_first(const struct resolver_table *table, uint64_t hash);
struct resolver_node *resolver_table_next(const struct resolver_node *node);

/* 0 or -ENOMEM. Chains are charged to ACCOUNT, always the same one. */
int resolver_table_add(struct resolver_table *table, struct guest_account *account, uint64_t hash,
		       struct resolver_node *node);
void resolver_table_remove(struct resolver_table *table, struct resolver_node *node);
/* Does not free the items. */
void resolver_table_free(struct resolver_table *table, struct guest_account *account);

#endif
