// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/resolver_store.h"

#include <assert.h>
#include <stdlib.h>

void *resolver_store_take(struct resolver_store *store, size_t size)
{
	void *bytes = size <= RESOLVER_STORE_MAX - store->bytes ? calloc(1, size) : NULL;

	if (bytes)
		store->bytes += size;
	return bytes;
}

void *resolver_store_resize(struct resolver_store *store, void *items, size_t item_size, size_t count,
			    size_t larger)
{
	size_t more = (larger - count) * item_size;
	void *grown;

	assert(larger > count);
	if (more > RESOLVER_STORE_MAX - store->bytes)
		return NULL;
	grown = reallocarray(items, larger, item_size);
	if (grown)
		store->bytes += more;
	return grown;
}

void resolver_store_give(struct resolver_store *store, void *bytes, size_t size)
{
	if (!bytes)
		return;
	assert(size <= store->bytes);
	store->bytes -= size;
	free(bytes);
}
