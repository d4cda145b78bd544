/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts records of several sources in order of time. Each source is nearly in
 * order: what follows its latest record waits in the source's queue, and what
 * comes before it in a heap of strays. So a record costs the logarithm of the
 * number of sources, and at the worst that of all that wait. At equal times
 * sideband comes before samples, then what came first. The resolver's thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_ORDER_H
#define KVMSCOPE_RESOLVE_RESOLVER_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_account.h"

struct resolver_order_item {
	uint64_t time;   /* ns */
	uint64_t number; /* in order of arrival; samples behind sideband */
	size_t source;
	void *record; /* a copy, 8-byte aligned; whoever gets the item may change it */
	struct resolver_order_block *block;
};

struct resolver_order_heap {
	struct resolver_order_item *items; /* the earliest first */
	size_t count, capacity;
};

struct resolver_order {
	struct resolver_order_queue *queues; /* one for each source */
	size_t sources;
	struct resolver_order_heap heads; /* the first of each queue that is not empty */
	struct resolver_order_heap strays;
	struct resolver_order_block *spare; /* of samples */
	struct guest_account *account;      /* for all that is no sample: */
	size_t taken;                       /* bytes of it */
	uint64_t count;                     /* of records so far */
	size_t bytes;                       /* of records that wait */
};

/* What sideband takes is of ACCOUNT, which outlives it. 0 or -ENOMEM. */
int resolver_order_init(struct resolver_order *order, size_t sources,
			struct guest_account *account);
void resolver_order_free(struct resolver_order *order);

/* Takes a copy of RECORD, SIZE bytes, at most RESOLVER_ORDER_RECORD_MAX. 0; -ENOMEM, also where the
 * guest may take no more. */
#define RESOLVER_ORDER_RECORD_MAX (32ul << 10)
int resolver_order_add(struct resolver_order *order, size_t source, uint64_t time, bool is_sample,
		       const void *record, size_t size);

/* The earliest that waits, or NULL. Valid until the next call. */
const struct resolver_order_item *resolver_order_first(const struct resolver_order *order);
bool resolver_order_is_sample(const struct resolver_order_item *item);
/* Lets go of the earliest; there is one, of SIZE bytes as it was added. */
void resolver_order_drop(struct resolver_order *order, size_t size);

#endif
