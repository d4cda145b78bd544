/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory budget of one guest on this host. Every table that grows with what the guest reports is
 * charged to the guest's account. When the account is full, the drop callback frees queued symbol
 * tables, oldest first; if that is not enough, the charge fails and the caller counts a loss.
 *
 * Any thread. A NULL account has no limit (for unit tests of one part).
 */
#ifndef KVMSCOPE_GUEST_ACCOUNT_H
#define KVMSCOPE_GUEST_ACCOUNT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define GUEST_ACCOUNT_DEFAULT (64ul << 20) /* bytes */

struct guest_account {
	size_t limit;         /* bytes */
	_Atomic size_t used;  /* bytes, at most the limit */
	pthread_mutex_t lock; /* protects drop and context */
	void (*drop)(void *context, size_t size);
	void *context;
};

/* ACCOUNT must not be moved afterwards. */
void guest_account_init(struct guest_account *account, size_t limit);

/*
 * Sets the callback that releases memory when a charge of SIZE bytes does not fit. It runs on the
 * charging thread, which holds no lock that DROP takes. After a call with NULL returns, no callback
 * is running.
 */
void guest_account_set_drop(struct guest_account *account, void (*drop)(void *context, size_t size),
			    void *context);

/* Charges SIZE bytes, calling the drop callback if they do not fit. False: they still do not. */
bool guest_account_charge(struct guest_account *account, size_t size);
/* The same without the drop callback. */
bool guest_account_try_charge(struct guest_account *account, size_t size);
/* Releases SIZE charged bytes. */
void guest_account_release(struct guest_account *account, size_t size);

/* Heap memory, charged with the heap's own overhead. */

/* Zeroed. NULL: no memory, or the charge failed. */
void *guest_account_new(struct guest_account *account, size_t size);
/*
 * Grows ITEMS (NULL: none yet) from COUNT to LARGER items of ITEM_SIZE bytes. NULL as above, with
 * ITEMS unchanged.
 */
void *guest_account_resize(struct guest_account *account, void *items, size_t item_size,
			   size_t count, size_t larger);
/* SIZE is the allocated size of BYTES. NULL is a no-op. */
void guest_account_free(struct guest_account *account, void *bytes, size_t size);

#endif
