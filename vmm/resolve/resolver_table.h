/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table of items that come and go, each with its node inside of it.
 * Chains, so that removing is cheap and items never move. Zeroed memory is an
 * empty table. One thread at a time.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_TABLE_H
#define KVMSCOPE_RESOLVE_RESOLVER_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_account.h"

struct resolver_node {
	struct resolver_node *next; /* of the same hash's chain, the newest first */
	uint64_t hash;
};

struct resolver_table {
	struct resolver_node **chains;
	size_t count, capacity; /* of items; of chains, a power of two */
};

/* The newest node of HASH, or NULL. What else has this hash follows by resolver_table_next(). */
struct resolver_node *resolver_table_first(const struct resolver_table *table, uint64_t hash);
struct resolver_node *resolver_table_next(const struct resolver_node *node);

/* 0 or -ENOMEM. Chains are of ACCOUNT's memory, always of the same one. */
int resolver_table_add(struct resolver_table *table, struct guest_account *account, uint64_t hash,
		       struct resolver_node *node);
void resolver_table_remove(struct resolver_table *table, struct resolver_node *node);
/* Not the items. */
void resolver_table_free(struct resolver_table *table, struct guest_account *account);

#endif
