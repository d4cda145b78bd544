/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorts records of several sources by time. Each source is nearly in order: records that follow its
 * latest one wait in the source's queue, earlier ones in a heap of strays. So a record costs the
 * logarithm of the number of sources, at worst that of all waiting records. At equal times sideband
 * precedes samples; after that the order of arrival counts. Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_ORDER_H
#define KVMSCOPE_RESOLVE_RESOLVER_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_account.h"

struct resolver_order_item {
	uint64_t time;   /* ns */
	uint64_t number; /* order of arrival; samples after sideband */
	size_t source;
	void *record; /* a copy, 8-byte aligned; may be modified */
	struct resolver_order_block *block;
};

struct resolver_order_heap {
	struct resolver_order_item *items; /* the earliest first */
	size_t count, capacity;
};

struct resolver_order {
	struct resolver_order_queue *queues; /* one per source */
	size_t sources;
	struct resolver_order_heap heads; /* the first of each non-empty queue */
	struct resolver_order_heap strays;
	struct resolver_order_block *spare; /* for samples */
	struct guest_account *account;      /* charged for everything except samples: */
	size_t charged;                     /* bytes */
	uint64_t count;                     /* of records so far */
	size_t bytes;                       /* of waiting records */
};

/* Sideband is charged to ACCOUNT, which outlives it. 0 or -ENOMEM. */
int resolver_order_init(struct resolver_order *order, size_t sources,
			struct guest_account *account);
void resolver_order_free(struct resolver_order *order);

/* Copies RECORD, of SIZE bytes, at most RESOLVER_ORDER_RECORD_MAX. 0; -ENOMEM, also for the guest's
 * limit. */
#define RESOLVER_ORDER_RECORD_MAX (32ul << 10)
int resolver_order_add(struct resolver_order *order, size_t source, uint64_t time, bool is_sample,
		       const void *record, size_t size);

/* The earliest waiting record; NULL: none. Valid until the next call. */
const struct resolver_order_item *resolver_order_first(const struct resolver_order *order);
bool resolver_order_is_sample(const struct resolver_order_item *item);
/* Removes the earliest record, which was added with SIZE bytes. */
void resolver_order_drop(struct resolver_order *order, size_t size);

#endif
