/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_threads.h"

#include <errno.h>
#include <string.h>

#include "shared/hash.h"
#include "shared/sideband_record.h"

struct resolver_naming {
	uint64_t from, reported; /* as in struct resolver_name */
	struct resolver_naming *older;
	char comm[SIDEBAND_COMM_SIZE];
};

struct resolver_thread *resolver_threads_find(const struct resolver_threads *threads, uint32_t tid)
{
	struct resolver_node *node = resolver_table_first(&threads->table, hash_mix(0, tid));

	while (node && ((struct resolver_thread *)node)->tid != tid)
		node = resolver_table_next(node);
	return (struct resolver_thread *)node;
}

struct resolver_thread *resolver_threads_get(struct resolver_threads *threads,
					     struct resolver_store *store, uint32_t tid)
{
	struct resolver_thread *thread = resolver_threads_find(threads, tid);

	if (thread)
		return thread;
	thread = resolver_store_add(store, &threads->table, hash_mix(0, tid), sizeof(*thread));
	if (thread)
		thread->tid = tid;
	return thread;
}

static void add_to_past(struct resolver_threads *threads, struct resolver_thread *thread)
{
	if (thread->listed)
		return;
	thread->listed = true;
	thread->next = threads->past;
	threads->past = thread;
}

int resolver_threads_name(struct resolver_threads *threads, struct resolver_store *store,
			  struct resolver_thread *thread, uint64_t time,
			  const struct resolver_name *name)
{
	struct resolver_naming *naming = resolver_store_alloc(store, sizeof(*naming)), **link;

	if (!naming)
		return -ENOMEM;
	for (link = &thread->newest; *link && (*link)->from > time;)
		link = &(*link)->older;
	naming->from = time;
	naming->reported = name->reported;
	memcpy(naming->comm, name->comm, strnlen(name->comm, sizeof(naming->comm) - 1));
	naming->older = *link;
	*link = naming;
	add_to_past(threads, thread);
	return 0;
}

struct resolver_name resolver_threads_name_of(const struct resolver_threads *threads, uint32_t tid,
					      uint64_t time)
{
	const struct resolver_thread *thread = resolver_threads_find(threads, tid);
	const struct resolver_naming *naming = thread ? thread->newest : NULL;

	while (naming && naming->from > time)
		naming = naming->older;
	return naming ? (struct resolver_name){ naming->comm, naming->reported }
		      : (struct resolver_name){ "", 0 };
}

static void free_names(struct resolver_store *store, struct resolver_naming *naming)
{
	while (naming) {
		struct resolver_naming *older = naming->older;

		resolver_store_free(store, naming, sizeof(*naming));
		naming = older;
	}
}

static void free_thread(struct resolver_threads *threads, struct resolver_store *store,
			struct resolver_thread *thread)
{
	free_names(store, thread->newest);
	resolver_store_remove(store, &threads->table, &thread->node, sizeof(*thread));
}

/* Keeps the name at the horizon, and later ones. */
static void forget_names(struct resolver_store *store, struct resolver_thread *thread,
			 uint64_t horizon)
{
	struct resolver_naming *naming = thread->newest;

	while (naming->from > horizon && naming->older)
		naming = naming->older;
	free_names(store, naming->older);
	naming->older = NULL;
}

void resolver_threads_forget(struct resolver_threads *threads, struct resolver_store *store,
			     uint64_t horizon)
{
	struct resolver_thread **link = &threads->past, *thread;

	while ((thread = *link)) {
		forget_names(store, thread, horizon);
		if (thread->newest->from > horizon) {
			link = &thread->next;
			continue;
		}
		*link = thread->next;
		thread->listed = false;
		if (!*thread->newest->comm && !thread->lifetime)
			free_thread(threads, store, thread);
	}
}

void resolver_threads_free(struct resolver_threads *threads, struct resolver_store *store)
{
	for (size_t i = 0; i < threads->table.capacity; i++)
		while (threads->table.chains[i])
			free_thread(threads, store,
				    (struct resolver_thread *)threads->table.chains[i]);
	resolver_table_free(&threads->table, store->account);
}
