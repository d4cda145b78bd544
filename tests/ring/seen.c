/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ring/seen.h"

#include <stdlib.h>

static uint64_t mix_word(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash << 29 | hash >> 35;
}

/* Four chains, which the processor computes in parallel. */
uint64_t seen_hash(uint64_t hash, const void *bytes, size_t size)
{
	uint64_t chains[4] = { hash, hash + 1, hash + 2, hash + 3 };
	const uint64_t *words = bytes;
	size_t count = size / 8, i = 0;

	for (; i + 4 <= count; i += 4)
		for (int k = 0; k < 4; k++)
			chains[k] = mix_word(chains[k], words[i + k]);
	for (; i < count; i++)
		chains[0] = mix_word(chains[0], words[i]);
	for (int k = 1; k < 4; k++)
		chains[0] = mix_word(chains[0], chains[k]);
	return chains[0] ^ chains[0] >> 32;
}

struct seen *seen_find(const struct seen_table *table, uint64_t hash)
{
	uint64_t slot = hash & (table->size - 1);

	while (table->slots[slot].hash && table->slots[slot].hash != hash)
		slot = (slot + 1) & (table->size - 1);
	return &table->slots[slot];
}

static void grow(struct seen_table *table)
{
	struct seen_table larger = { .size = table->size ? table->size * 2 : 1024,
				     .used = table->used };

	larger.slots = calloc(larger.size, sizeof(*larger.slots));
	if (!larger.slots)
		abort();
	for (uint64_t i = 0; i < table->size; i++)
		if (table->slots[i].hash)
			*seen_find(&larger, table->slots[i].hash) = table->slots[i];
	free(table->slots);
	*table = larger;
}

struct seen *seen_enter(struct seen_table *table, uint64_t hash, bool *new)
{
	struct seen *seen;

	if (table->used * 2 >= table->size)
		grow(table);
	seen = seen_find(table, hash);
	*new = !seen->hash;
	table->used += *new;
	seen->hash = hash;
	return seen;
}
