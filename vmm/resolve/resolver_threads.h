/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of threads, by time, and in which life of its process each is
 * counted. As for lives: times in any order, none before the horizon. The
 * resolver's thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_THREADS_H
#define KVMSCOPE_RESOLVE_RESOLVER_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/resolve/resolver_store.h"

struct resolver_thread {
	struct resolver_node node;
	uint32_t tid;
	uint64_t life; /* the number of the one that it was heard of in last; 0: it ended */
	struct resolver_naming *newest;
	struct resolver_thread *next; /* in the list of struct resolver_threads, if LISTED */
	bool listed;
};

/* Zeroed: none. */
struct resolver_threads {
	struct resolver_table table;
	struct resolver_thread *past; /* those with something to forget */
};

/* What a thread is called. */
struct resolver_name {
	const char *comm; /* "" where it is not known, or it ended */
	uint64_t told; /* ns: when its source said so, perhaps of the thread's parent; with "", no
			  matter */
};

/* NULL: nothing is known of it. */
struct resolver_thread *resolver_threads_find(const struct resolver_threads *threads, uint32_t tid);
/* Makes it where nothing is known of it; NULL without memory. */
struct resolver_thread *resolver_threads_get(struct resolver_threads *threads,
					     struct resolver_store *store, uint32_t tid);

/* THREAD has NAME, which is copied, from TIME on. 0 or -ENOMEM. */
int resolver_threads_name(struct resolver_threads *threads, struct resolver_store *store,
			  struct resolver_thread *thread, uint64_t time,
			  const struct resolver_name *name);
/* Valid until the next call that changes the threads. */
struct resolver_name resolver_threads_name_of(const struct resolver_threads *threads, uint32_t tid,
					      uint64_t time);

/* Nothing is asked of times before HORIZON, ns, any more: names that others followed by then go,
 * and threads that had ended by then. */
void resolver_threads_forget(struct resolver_threads *threads, struct resolver_store *store,
			     uint64_t horizon);
/* Frees them all; THREADS are none then, as zeroed. */
void resolver_threads_free(struct resolver_threads *threads, struct resolver_store *store);

#endif
