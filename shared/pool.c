/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/pool.h"

#include <stdlib.h>
#include <string.h>

#include "shared/printable.h"

#define BLOCK_SIZE (256UL << 10)

struct pool_block {
	struct pool_block *next;
	size_t used, size;
	uint8_t bytes[] __attribute__((aligned(8)));
};

void *pool_alloc(struct pool *pool, size_t size)
{
	struct pool_block *block = pool->blocks;
	size_t needed = (size + 7) & ~(size_t)7;

	if (!block || block->size - block->used < needed) {
		size_t bytes = needed > BLOCK_SIZE ? needed : BLOCK_SIZE;

		block = calloc(1, sizeof(*block) + bytes);
		if (!block)
			return NULL;
		block->size = bytes;
		block->next = pool->blocks;
		pool->blocks = block;
	}
	block->used += needed;
	return block->bytes + block->used - needed;
}

static bool same_text(const void *item, const void *key)
{
	return !strcmp(item, key);
}

const char *pool_string(struct pool *pool, const char *text)
{
	size_t size = strlen(text) + 1;
	uint64_t hash;
	char *copy = malloc(size), *stored;

	if (!copy)
		return NULL;
	memcpy(copy, text, size);
	make_printable(copy);
	hash = hash_mix_bytes(0, copy, strlen(copy));
	stored = hash_table_find(&pool->strings, hash, same_text, copy);
	if (!stored) {
		stored = pool_alloc(pool, strlen(copy) + 1);
		if (stored)
			memcpy(stored, copy, strlen(copy) + 1);
		if (stored && hash_table_add(&pool->strings, hash, stored))
			stored = NULL;
	}
	free(copy);
	return stored;
}

void pool_free(struct pool *pool)
{
	struct pool_block *next;

	for (struct pool_block *block = pool->blocks; block; block = next) {
		next = block->next;
		free(block);
	}
	hash_table_free(&pool->strings);
	*pool = (struct pool){ 0 };
}
