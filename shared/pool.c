/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/hash.h"

#define BLOCK_SIZE (256UL << 10)

struct pool_block {
	struct pool_block *next;
	size_t used, size;
	uint8_t bytes[] __attribute__((aligned(8)));
};

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

/* The length of the UTF-8 sequence at TEXT and its CODE point; 0 where it is none. */
static size_t decode(const uint8_t *text, uint32_t *code)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t length = *text < 0x80   ? 1
			: *text < 0xc0 ? 0
			: *text < 0xe0 ? 2
			: *text < 0xf0 ? 3
				       : 4;

	if (!length || *text > 0xf4)
		return 0;
	*code = length == 1 ? *text : *text & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (text[i] & 0x3f);
	}
	if (*code < smallest[length] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
		return 0;
	return length;
}

/* Control characters, line and paragraph separators, invisible ones, and those that reorder text.
 */
static bool is_treacherous(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0xad || code == 0x61c ||
	       (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
	       (code >= 0xfff0 && code <= 0xffff) || (code >= 0xe0000 && code <= 0xe0fff);
}

void make_showable(char *text)
{
	uint8_t *from = (uint8_t *)text, *to = (uint8_t *)text;
	uint32_t code;

	while (*from) {
		size_t length = decode(from, &code);

		if (!length || is_treacherous(code)) {
			*to++ = '?';
			from += length ? length : 1;
			continue;
		}
		memmove(to, from, length);
		to += length;
		from += length;
	}
	*to = '\0';
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
	make_showable(copy);
	hash = hash_mix(hash_add_text(HASH_START, copy), 0);
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
