/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/guest_account.h"

#include <assert.h>
#include <stdlib.h>

/* glibc's overhead for each allocation: header and rounding. */
#define HEAP_COST 16u

void guest_account_init(struct guest_account *account, size_t limit)
{
	*account = (struct guest_account){ .limit = limit };
	pthread_mutex_init(&account->lock, NULL);
}

void guest_account_set_drop(struct guest_account *account, void (*drop)(void *context, size_t size),
			    void *context)
{
	if (!account)
		return;
	pthread_mutex_lock(&account->lock);
	account->drop = drop;
	account->context = context;
	pthread_mutex_unlock(&account->lock);
}

bool guest_account_try_charge(struct guest_account *account, size_t size)
{
	size_t used;

	if (!account)
		return true;
	used = atomic_load(&account->used);
	do
		if (size > account->limit - used)
			return false;
	while (!atomic_compare_exchange_weak(&account->used, &used, used + size));
	return true;
}

bool guest_account_charge(struct guest_account *account, size_t size)
{
	if (guest_account_try_charge(account, size))
		return true;
	pthread_mutex_lock(&account->lock);
	if (account->drop)
		account->drop(account->context, size);
	pthread_mutex_unlock(&account->lock);
	return guest_account_try_charge(account, size);
}

void guest_account_release(struct guest_account *account, size_t size)
{
	size_t used;

	if (!account)
		return;
	used = atomic_fetch_sub(&account->used, size);
	assert(used >= size);
	(void)used;
}

void *guest_account_new(struct guest_account *account, size_t size)
{
	void *bytes;

	if (!guest_account_charge(account, size + HEAP_COST))
		return NULL;
	bytes = calloc(1, size);
	if (!bytes)
		guest_account_release(account, size + HEAP_COST);
	return bytes;
}

void *guest_account_resize(struct guest_account *account, void *items, size_t item_size,
			   size_t count, size_t larger)
{
	size_t more = (larger - count) * item_size + (items ? 0 : HEAP_COST);
	void *grown;

	assert(larger > count);
	if (!guest_account_charge(account, more))
		return NULL;
	grown = reallocarray(items, larger, item_size);
	if (!grown)
		guest_account_release(account, more);
	return grown;
}

void guest_account_free(struct guest_account *account, void *bytes, size_t size)
{
	if (!bytes)
		return;
	guest_account_release(account, size + HEAP_COST);
	free(bytes);
}
