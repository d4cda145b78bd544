/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_lifetimes.h"

#include <errno.h>

#include "shared/clock_ns.h"
#include "shared/hash.h"
#include "vmm/guest/guest_registers.h"

/* The top-level page table of a process. */
struct resolver_root {
	struct resolver_node node;
	uint64_t cr3, from;
	uint64_t reported; /* ns, of the latest report */
	struct resolver_lifetime *lifetime;
};

static struct resolver_process *find_process(const struct resolver_lifetimes *lifetimes,
					     uint32_t pid)
{
	struct resolver_node *node = resolver_table_first(&lifetimes->processes, hash_mix(0, pid));

	while (node && ((struct resolver_process *)node)->pid != pid)
		node = resolver_table_next(node);
	return (struct resolver_process *)node;
}

static struct resolver_process *get_process(struct resolver_lifetimes *lifetimes,
					    struct resolver_store *store, uint32_t pid)
{
	struct resolver_process *process = find_process(lifetimes, pid);

	if (process)
		return process;
	process = resolver_store_add(store, &lifetimes->processes, hash_mix(0, pid),
				     sizeof(*process));
	if (process)
		process->pid = pid;
	return process;
}

struct resolver_lifetime *resolver_lifetimes_latest(const struct resolver_lifetimes *lifetimes,
						    uint32_t pid, uint64_t time)
{
	const struct resolver_process *process = find_process(lifetimes, pid);
	struct resolver_lifetime *lifetime = process ? process->newest : NULL;

	while (lifetime && lifetime->born > time)
		lifetime = lifetime->older;
	return lifetime;
}

struct resolver_lifetime *resolver_lifetimes_find(const struct resolver_lifetimes *lifetimes,
						  uint32_t pid, uint64_t time)
{
	struct resolver_lifetime *lifetime = resolver_lifetimes_latest(lifetimes, pid, time);

	return lifetime && time < lifetime->died ? lifetime : NULL;
}

void resolver_lifetimes_end(struct resolver_lifetimes *lifetimes,
			    struct resolver_lifetime *lifetime, uint64_t time)
{
	if (lifetime->died == UINT64_MAX) {
		lifetime->next_dead = lifetimes->dead;
		lifetimes->dead = lifetime;
	}
	if (time < lifetime->died)
		lifetime->died = time;
}

/* Inserts LIFETIME by time among those of its process id. */
static void link_lifetime(struct resolver_lifetimes *lifetimes, struct resolver_lifetime *lifetime)
{
	struct resolver_lifetime *newer = NULL, *older = lifetime->process->newest;

	while (older && older->born > lifetime->born) {
		newer = older;
		older = older->older;
	}
	lifetime->newer = newer;
	lifetime->older = older;
	if (older)
		older->newer = lifetime;
	if (newer)
		newer->older = lifetime;
	else
		lifetime->process->newest = lifetime;
	if (older)
		resolver_lifetimes_end(lifetimes, older, lifetime->born);
	if (newer)
		resolver_lifetimes_end(lifetimes, lifetime, newer->born);
}

struct resolver_lifetime *resolver_lifetimes_begin(struct resolver_lifetimes *lifetimes,
						   struct resolver_store *store, uint32_t pid,
						   uint64_t time)
{
	struct resolver_lifetime *lifetime = resolver_store_alloc(store, sizeof(*lifetime));

	if (!lifetime)
		return NULL;
	lifetime->process = get_process(lifetimes, store, pid);
	if (!lifetime->process) {
		resolver_store_free(store, lifetime, sizeof(*lifetime));
		return NULL;
	}
	lifetime->number = ++lifetimes->begun;
	lifetime->born = time;
	lifetime->died = UINT64_MAX;
	link_lifetime(lifetimes, lifetime);
	lifetimes->kept++;
	return lifetime;
}

static int add_root(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
		    struct resolver_lifetime *lifetime, uint64_t cr3, uint64_t from)
{
	struct resolver_root *root =
		resolver_store_add(store, &lifetimes->roots, hash_mix(0, cr3), sizeof(*root));

	if (!root)
		return -ENOMEM;
	root->cr3 = cr3;
	root->from = from;
	root->lifetime = lifetime;
	lifetime->roots[lifetime->roots[0] != NULL] = root;
	return 0;
}

static int add_roots(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
		     struct resolver_lifetime *lifetime, const struct sideband *record,
		     uint64_t from)
{
	uint64_t cr3 = record->cr3 & CR3_ADDRESS;
	int error = add_root(lifetimes, store, lifetime, cr3, from);

	if (!error && record->flags & SIDEBAND_CR3_PAIR)
		error = add_root(lifetimes, store, lifetime, cr3 | CR3_PTI_USER, from);
	return error;
}

static void free_roots(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
		       struct resolver_lifetime *lifetime)
{
	for (size_t i = 0; i < 2; i++) {
		struct resolver_root *root = lifetime->roots[i];

		if (root)
			resolver_store_remove(store, &lifetimes->roots, &root->node, sizeof(*root));
		lifetime->roots[i] = NULL;
	}
}

/* Was it last reported before a loss, and is RECORD from after it? */
static bool is_outdated(const struct resolver_lifetime *lifetime, const struct sideband *record,
			uint64_t lost)
{
	return lifetime->roots[0]->reported <= lost && record->time > lost;
}

int resolver_lifetimes_root(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
			    struct resolver_lifetime *lifetime, const struct sideband *record,
			    uint64_t from, uint64_t lost)
{
	uint64_t cr3 = record->cr3 & CR3_ADDRESS;
	int error = 0;

	if (!cr3)
		return 0;
	if (lifetime->roots[0] && lifetime->roots[0]->cr3 != cr3) {
		if (!is_outdated(lifetime, record, lost))
			return 0;
		free_roots(lifetimes, store, lifetime);
	}
	if (!lifetime->roots[0])
		error = add_roots(lifetimes, store, lifetime, record, from);
	for (size_t i = 0; i < 2 && lifetime->roots[i]; i++)
		lifetime->roots[i]->reported =
			time_later(lifetime->roots[i]->reported, record->time);
	return error;
}

/* After a loss, reports from before it may be about another process's page tables. */
static bool is_stale(const struct resolver_root *root, uint64_t time, uint64_t lost)
{
	return lost && (root->reported <= lost || time <= lost);
}

uint64_t resolver_lifetime_root(const struct resolver_lifetime *lifetime, uint64_t lost, bool *pair)
{
	const struct resolver_root *root = lifetime->roots[0];

	*pair = lifetime->roots[1];
	return root && (!lost || root->reported > lost) ? root->cr3 : 0;
}

/* A vfork() child shares its parent's until it execs or ends, and is the one that runs. */
struct resolver_lifetime *resolver_lifetimes_find_root(const struct resolver_lifetimes *lifetimes,
						       uint64_t cr3, uint64_t time, uint64_t lost)
{
	const struct resolver_root *found = NULL;
	struct resolver_node *node;

	cr3 &= CR3_ADDRESS;
	node = resolver_table_first(&lifetimes->roots, hash_mix(0, cr3));
	for (; node; node = resolver_table_next(node)) {
		const struct resolver_root *root = (const void *)node;

		if (root->cr3 == cr3 && root->from <= time && time < root->lifetime->died &&
		    !is_stale(root, time, lost) && (!found || root->from > found->from))
			found = root;
	}
	return found ? found->lifetime : NULL;
}

void resolver_lifetimes_changed(struct resolver_lifetimes *lifetimes,
				struct resolver_lifetime *lifetime)
{
	if (lifetime->in_past || !resolver_space_has_past(&lifetime->space))
		return;
	lifetime->in_past = true;
	lifetime->next_past = lifetimes->past;
	lifetimes->past = lifetime;
}

static void unlink_lifetime(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
			    struct resolver_lifetime *lifetime)
{
	struct resolver_process *process = lifetime->process;

	if (lifetime->newer)
		lifetime->newer->older = lifetime->older;
	else
		process->newest = lifetime->older;
	if (lifetime->older)
		lifetime->older->newer = lifetime->newer;
	if (process->newest)
		return;
	resolver_store_remove(store, &lifetimes->processes, &process->node, sizeof(*process));
}

static void free_lifetime(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
			  struct resolver_lifetime *lifetime)
{
	unlink_lifetime(lifetimes, store, lifetime);
	free_roots(lifetimes, store, lifetime);
	resolver_space_free(&lifetime->space, store);
	resolver_store_free(store, lifetime, sizeof(*lifetime));
	lifetimes->kept--;
}

/* Lifetimes that are about to be freed leave this list, too. */
static void forget_mappings(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
			    uint64_t horizon)
{
	struct resolver_lifetime **link = &lifetimes->past, *lifetime;

	while ((lifetime = *link)) {
		resolver_space_forget(&lifetime->space, store, horizon);
		lifetime->in_past =
			lifetime->died > horizon && resolver_space_has_past(&lifetime->space);
		if (lifetime->in_past)
			link = &lifetime->next_past;
		else
			*link = lifetime->next_past;
	}
}

static void free_ended(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
		       uint64_t horizon)
{
	struct resolver_lifetime **link = &lifetimes->dead, *lifetime;

	while ((lifetime = *link)) {
		if (lifetime->died > horizon) {
			link = &lifetime->next_dead;
			continue;
		}
		*link = lifetime->next_dead;
		free_lifetime(lifetimes, store, lifetime);
	}
}

void resolver_lifetimes_forget(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
			       uint64_t horizon)
{
	forget_mappings(lifetimes, store, horizon);
	free_ended(lifetimes, store, horizon);
}

void resolver_lifetimes_free(struct resolver_lifetimes *lifetimes, struct resolver_store *store)
{
	for (size_t i = 0; i < lifetimes->processes.capacity; i++)
		while (lifetimes->processes.chains[i])
			free_lifetime(lifetimes, store,
				      ((struct resolver_process *)lifetimes->processes.chains[i])
					      ->newest);
	resolver_table_free(&lifetimes->processes, store->account);
	resolver_table_free(&lifetimes->roots, store->account);
}
