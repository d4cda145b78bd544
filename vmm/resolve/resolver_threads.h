/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of threads over time, and the process that each thread is counted in. Times come in any
 * order, not before the horizon. Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_THREADS_H
#define KVMSCOPE_RESOLVE_RESOLVER_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/resolve/resolver_store.h"

struct resolver_thread {
	struct resolver_node node;
	uint32_t tid;
	uint64_t lifetime; /* number of the process of its latest record; 0: it has ended */
	struct resolver_naming *newest;
	struct resolver_thread *next; /* in the list of struct resolver_threads, if LISTED */
	bool listed;
};

/* Zeroed: none. */
struct resolver_threads {
	struct resolver_table table;
	struct resolver_thread *past; /* those that keep something that will expire */
};

/* The name of a thread. */
struct resolver_name {
	const char *comm;  /* "" if unknown, or the thread has ended */
	uint64_t reported; /* ns, of the report on it or its parent; undefined with "" */
};

/* NULL: unknown. */
struct resolver_thread *resolver_threads_find(const struct resolver_threads *threads, uint32_t tid);
/* Creates it if it is unknown; NULL without memory. */
struct resolver_thread *resolver_threads_get(struct resolver_threads *threads,
					     struct resolver_store *store, uint32_t tid);

/* THREAD has NAME, which is copied, from TIME on. 0 or -ENOMEM. */
int resolver_threads_name(struct resolver_threads *threads, struct resolver_store *store,
			  struct resolver_thread *thread, uint64_t time,
			  const struct resolver_name *name);
/* Valid until the threads change. */
struct resolver_name resolver_threads_name_of(const struct resolver_threads *threads, uint32_t tid,
					      uint64_t time);

/* Frees names that were replaced and threads that had ended by HORIZON (ns): no lookup of an
 * earlier time follows. */
void resolver_threads_forget(struct resolver_threads *threads, struct resolver_store *store,
			     uint64_t horizon);
/* Frees all; THREADS are zeroed. */
void resolver_threads_free(struct resolver_threads *threads, struct resolver_store *store);

#endif
