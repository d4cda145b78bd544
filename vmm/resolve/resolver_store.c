/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_store.h"

#include <assert.h>
#include <errno.h>

void *resolver_store_alloc(struct resolver_store *store, size_t size)
{
	void *bytes = guest_account_new(store->account, size);

	if (bytes)
		store->bytes += size;
	return bytes;
}

void *resolver_store_resize(struct resolver_store *store, void *items, size_t item_size,
			    size_t count, size_t larger)
{
	void *grown = guest_account_resize(store->account, items, item_size, count, larger);

	if (grown)
		store->bytes += (larger - count) * item_size;
	return grown;
}

void resolver_store_free(struct resolver_store *store, void *bytes, size_t size)
{
	if (!bytes)
		return;
	assert(size <= store->bytes);
	store->bytes -= size;
	guest_account_free(store->account, bytes, size);
}

/* --- tables ----------------------------------------------------------------------- */

#define SMALLEST 256

struct resolver_node *resolver_table_first(const struct resolver_table *table, uint64_t hash)
{
	struct resolver_node *node =
		table->capacity ? table->chains[hash & (table->capacity - 1)] : NULL;

	while (node && node->hash != hash)
		node = node->next;
	return node;
}

struct resolver_node *resolver_table_next(const struct resolver_node *node)
{
	struct resolver_node *next = node->next;

	while (next && next->hash != node->hash)
		next = next->next;
	return next;
}

/* Keeps the order of each chain. */
static void move_chain(struct resolver_node *node, struct resolver_node **low,
		       struct resolver_node **high, size_t bit)
{
	for (; node; node = node->next) {
		struct resolver_node ***end = node->hash & bit ? &high : &low;

		**end = node;
		*end = &node->next;
	}
	*low = *high = NULL;
}

static void free_chains(struct resolver_table *table, struct guest_account *account)
{
	guest_account_free(account, table->chains,
			   table->capacity * sizeof(struct resolver_node *));
}

static int grow(struct resolver_table *table, struct guest_account *account)
{
	size_t capacity = table->capacity ? 2 * table->capacity : SMALLEST;
	struct resolver_node **chains =
		guest_account_new(account, capacity * sizeof(struct resolver_node *));

	if (!chains)
		return -ENOMEM;
	for (size_t i = 0; i < table->capacity; i++)
		move_chain(table->chains[i], &chains[i], &chains[i + table->capacity],
			   table->capacity);
	free_chains(table, account);
	table->chains = chains;
	table->capacity = capacity;
	return 0;
}

static int add(struct resolver_table *table, struct guest_account *account, uint64_t hash,
	       struct resolver_node *node)
{
	struct resolver_node **chain;

	if (table->count >= table->capacity && grow(table, account))
		return -ENOMEM;
	chain = &table->chains[hash & (table->capacity - 1)];
	node->hash = hash;
	node->next = *chain;
	*chain = node;
	table->count++;
	return 0;
}

static void unlink_node(struct resolver_table *table, struct resolver_node *node)
{
	struct resolver_node **link = &table->chains[node->hash & (table->capacity - 1)];

	while (*link != node) {
		assert(*link);
		link = &(*link)->next;
	}
	*link = node->next;
	table->count--;
}

void resolver_table_free(struct resolver_table *table, struct guest_account *account)
{
	free_chains(table, account);
	*table = (struct resolver_table){ 0 };
}

void *resolver_store_add(struct resolver_store *store, struct resolver_table *table, uint64_t hash,
			 size_t size)
{
	struct resolver_node *node = resolver_store_alloc(store, size);

	if (!node || !add(table, store->account, hash, node))
		return node;
	resolver_store_free(store, node, size);
	return NULL;
}

void resolver_store_remove(struct resolver_store *store, struct resolver_table *table,
			   struct resolver_node *node, size_t size)
{
	unlink_node(table, node);
	resolver_store_free(store, node, size);
}
