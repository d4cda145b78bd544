/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all parts of the resolver share: the memory that they take together,
 * which is of the guest's account, and the images. Zeroed: nothing is in it, and
 * the memory is not limited. The resolver's thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_STORE_H
#define KVMSCOPE_RESOLVE_RESOLVER_STORE_H

#include <stddef.h>

#include "vmm/guest/guest_account.h"
#include "vmm/resolve/resolver_table.h"

struct resolver_store {
	struct guest_account
		*account; /* the guest's; what is more than it allows is refused, and counted */
	struct resolver_table images; /* struct resolver_image */
	size_t bytes;                 /* taken and not given back */
};

/* Zeroed bytes, or NULL: no memory, or more than the guest may take. */
void *resolver_store_alloc(struct resolver_store *store, size_t size);
/* ITEMS (NULL: none yet), COUNT of ITEM_SIZE bytes, with room for LARGER. NULL as above: they are
 * as they were. */
void *resolver_store_resize(struct resolver_store *store, void *items, size_t item_size,
			    size_t count, size_t larger);
/* SIZE as it was taken. NULL is a no-op. */
void resolver_store_free(struct resolver_store *store, void *bytes, size_t size);

#endif
