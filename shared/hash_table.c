/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/hash_table.h"

#include <errno.h>
#include <stdlib.h>

void *hash_table_find(const struct hash_table *table, uint64_t hash, hash_table_equal *equal,
		      const void *key)
{
	if (!table->capacity)
		return NULL;
	for (size_t i = hash & (table->capacity - 1);; i = (i + 1) & (table->capacity - 1)) {
		const struct hash_table_slot *slot = &table->slots[i];

		if (!slot->item)
			return NULL;
		if (slot->hash == hash && equal(slot->item, key))
			return slot->item;
	}
}

static void put(struct hash_table *table, uint64_t hash, void *item)
{
	size_t i = hash & (table->capacity - 1);

	while (table->slots[i].item)
		i = (i + 1) & (table->capacity - 1);
	table->slots[i] = (struct hash_table_slot){ .hash = hash, .item = item };
	table->count++;
}

static int grow(struct hash_table *table)
{
	struct hash_table larger = { .capacity = table->capacity ? 2 * table->capacity : 1024 };

	larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < table->capacity; i++)
		if (table->slots[i].item)
			put(&larger, table->slots[i].hash, table->slots[i].item);
	free(table->slots);
	*table = larger;
	return 0;
}

int hash_table_add(struct hash_table *table, uint64_t hash, void *item)
{
	if (3 * table->count >= 2 * table->capacity && grow(table))
		return -ENOMEM;
	put(table, hash, item);
	return 0;
}

void hash_table_free(struct hash_table *table)
{
	free(table->slots);
	*table = (struct hash_table){ 0 };
}
