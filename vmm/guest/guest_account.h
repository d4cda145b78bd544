/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one guest can make this host keep, all together: each part that grows with what the guest
 * tells takes its memory from the guest's account and gives it back. Where there is no more, symbol
 * tables that wait go first, the oldest before the others; then what asks for more is refused, and
 * counts that as its own losses.
 *
 * Any thread. A NULL account has no limit: for tests of a part alone.
 */
#ifndef KVMSCOPE_GUEST_GUEST_ACCOUNT_H
#define KVMSCOPE_GUEST_GUEST_ACCOUNT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define GUEST_ACCOUNT_DEFAULT (64ul << 20) /* bytes */

struct guest_account {
	size_t limit;         /* bytes */
	_Atomic size_t used;  /* bytes, never more than the limit */
	pthread_mutex_t lock; /* of the next two */
	void (*drop)(void *context, size_t size);
	void *context;
};

/* It must stay where it is. */
void guest_account_init(struct guest_account *account, size_t limit);

/*
 * DROP is called where SIZE bytes are asked for and not there: it gives back as much as it can. On
 * the thread that asks, which holds no lock that DROP takes. NULL: from here on there is nothing to
 * drop; it is not running any more.
 */
void guest_account_set_drop(struct guest_account *account, void (*drop)(void *context, size_t size),
			    void *context);

/* False: so much is not there. */
bool guest_account_charge(struct guest_account *account, size_t size);
/* The same, and nothing is dropped for it. */
bool guest_account_try_charge(struct guest_account *account, size_t size);
/* SIZE was taken. */
void guest_account_release(struct guest_account *account, size_t size);

/* Memory of the heap, with what the heap needs for itself. */

/* Zeroed; NULL: there is none, or it is not there in the account. */
void *guest_account_new(struct guest_account *account, size_t size);
/* ITEMS (NULL: none yet), COUNT of ITEM_SIZE bytes, get room for LARGER, which is more. NULL as
 * above: they are as they were. */
void *guest_account_resize(struct guest_account *account, void *items, size_t item_size,
			   size_t count, size_t larger);
/* SIZE is what BYTES have. NULL is a no-op. */
void guest_account_free(struct guest_account *account, void *bytes, size_t size);

#endif
