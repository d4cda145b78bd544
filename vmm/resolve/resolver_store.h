/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the parts of the resolver share, charged to the guest's account, and the images.
 * Zeroed: empty, and without a limit. Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_STORE_H
#define KVMSCOPE_RESOLVE_RESOLVER_STORE_H

#include <stddef.h>

#include "vmm/guest/guest_account.h"
#include "vmm/resolve/resolver_table.h"

struct resolver_store {
	struct guest_account *account; /* the guest's; allocations beyond its limit fail */
	struct resolver_table images;  /* struct resolver_image */
	size_t bytes;                  /* allocated now */
};

/* Zeroed bytes; NULL: no memory, or the guest's limit. */
void *resolver_store_alloc(struct resolver_store *store, size_t size);
/* Grows ITEMS (NULL: none yet) from COUNT to LARGER items of ITEM_SIZE bytes. NULL as above, with
 * the items unchanged. */
void *resolver_store_resize(struct resolver_store *store, void *items, size_t item_size,
			    size_t count, size_t larger);
/* SIZE is that of the allocation. NULL is a no-op. */
void resolver_store_free(struct resolver_store *store, void *bytes, size_t size);

#endif
