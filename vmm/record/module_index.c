/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/module_index.h"

#include <errno.h>
#include <stdlib.h>

#include "shared/hash.h"

/* Knuth, The Art of Computer Programming, vol. 3, 6.4: the fraction of the golden ratio. */
#define MULTIPLIER 0x9e3779b97f4a7c15ull

int module_index_open(struct module_index *index, size_t count)
{
	*index = (struct module_index){ .bits = 1 };
	while ((size_t)1 << index->bits < count)
		index->bits++;
	index->heads = calloc((size_t)1 << index->bits, sizeof(index->heads[0]));
	index->next = calloc(count + 1, sizeof(index->next[0]));
	if (index->heads && index->next)
		return 0;
	module_index_close(index);
	return -ENOMEM;
}

void module_index_close(struct module_index *index)
{
	free(index->heads);
	free(index->next);
	*index = (struct module_index){ 0 };
}

static size_t bucket_of(const struct module_index *index, uint64_t number)
{
	return number * MULTIPLIER >> (64 - index->bits);
}

void module_index_add(struct module_index *index, uint64_t number, size_t member)
{
	uint32_t *head = &index->heads[bucket_of(index, number)];

	index->next[member] = *head;
	*head = (uint32_t)member + 1;
}

size_t module_index_first(const struct module_index *index, uint64_t number)
{
	return (size_t)index->heads[bucket_of(index, number)] - 1;
}

size_t module_index_next(const struct module_index *index, size_t member)
{
	return (size_t)index->next[member] - 1;
}

uint64_t module_index_name(const char *name)
{
	return hash_add_text(HASH_START, name);
}
