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
