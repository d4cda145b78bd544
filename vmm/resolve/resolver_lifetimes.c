/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_lifetimes.h"

#include <errno.h>

#include "shared/hash.h"
#include "vmm/guest/guest_registers.h"

/* The top-level page table of a process. */
struct resolver_root {
	struct resolver_node node;
	uint64_t cr3, from;
	uint64_t told; /* ns, of the latest report */
	struct resolver_lifetime *life;
};

static struct resolver_process *find_process(const struct resolver_lifetimes *lives, uint32_t pid)
{
	struct resolver_node *node = resolver_table_first(&lives->processes, hash_mix(0, pid));

	while (node && ((struct resolver_process *)node)->pid != pid)
		node = resolver_table_next(node);
	return (struct resolver_process *)node;
}

static struct resolver_process *need_process(struct resolver_lifetimes *lives,
					     struct resolver_store *store, uint32_t pid)
{
	struct resolver_process *process = find_process(lives, pid);

	if (process)
		return process;
	process = resolver_store_alloc(store, sizeof(*process));
	if (!process)
		return NULL;
	process->pid = pid;
	if (resolver_table_add(&lives->processes, store->account, hash_mix(0, pid),
			       &process->node)) {
		resolver_store_free(store, process, sizeof(*process));
		return NULL;
	}
	return process;
}

struct resolver_lifetime *resolver_lifetimes_latest(const struct resolver_lifetimes *lives,
						    uint32_t pid, uint64_t time)
{
	const struct resolver_process *process = find_process(lives, pid);
	struct resolver_lifetime *life = process ? process->newest : NULL;

	while (life && life->born > time)
		life = life->older;
	return life;
}

struct resolver_lifetime *resolver_lifetimes_find(const struct resolver_lifetimes *lives,
						  uint32_t pid, uint64_t time)
{
	struct resolver_lifetime *life = resolver_lifetimes_latest(lives, pid, time);

	return life && time < life->died ? life : NULL;
}

void resolver_lifetimes_end(struct resolver_lifetimes *lives, struct resolver_lifetime *life,
			    uint64_t time)
{
	if (life->died == UINT64_MAX) {
		life->next_dead = lives->dead;
		lives->dead = life;
	}
	if (time < life->died)
		life->died = time;
}

/* Inserts LIFE by time among those of its process id. */
static void link_life(struct resolver_lifetimes *lives, struct resolver_lifetime *life)
{
	struct resolver_lifetime *newer = NULL, *older = life->process->newest;

	while (older && older->born > life->born) {
		newer = older;
		older = older->older;
	}
	life->newer = newer;
	life->older = older;
	if (older)
		older->newer = life;
	if (newer)
		newer->older = life;
	else
		life->process->newest = life;
	if (older)
		resolver_lifetimes_end(lives, older, life->born);
	if (newer)
		resolver_lifetimes_end(lives, life, newer->born);
}

struct resolver_lifetime *resolver_lifetimes_begin(struct resolver_lifetimes *lives,
						   struct resolver_store *store, uint32_t pid,
						   uint64_t time)
{
	struct resolver_lifetime *life = resolver_store_alloc(store, sizeof(*life));

	if (!life)
		return NULL;
	life->process = need_process(lives, store, pid);
	if (!life->process) {
		resolver_store_free(store, life, sizeof(*life));
		return NULL;
	}
	life->number = ++lives->begun;
	life->born = time;
	life->died = UINT64_MAX;
	link_life(lives, life);
	lives->kept++;
	return life;
}

static int add_root(struct resolver_lifetimes *lives, struct resolver_store *store,
		    struct resolver_lifetime *life, uint64_t cr3, uint64_t from)
{
	struct resolver_root *root = resolver_store_alloc(store, sizeof(*root));

	if (!root)
		return -ENOMEM;
	root->cr3 = cr3;
	root->from = from;
	root->life = life;
	if (resolver_table_add(&lives->roots, store->account, hash_mix(0, cr3), &root->node)) {
		resolver_store_free(store, root, sizeof(*root));
		return -ENOMEM;
	}
	life->roots[life->roots[0] != NULL] = root;
	return 0;
}

static int add_roots(struct resolver_lifetimes *lives, struct resolver_store *store,
		     struct resolver_lifetime *life, const struct sideband *record, uint64_t from)
{
	uint64_t cr3 = record->cr3 & CR3_ADDRESS;
	int error = add_root(lives, store, life, cr3, from);

	if (!error && record->flags & SIDEBAND_CR3_PAIR)
		error = add_root(lives, store, life, cr3 | CR3_PTI_USER, from);
	return error;
}

static void free_root(struct resolver_lifetimes *lives, struct resolver_store *store,
		      struct resolver_root *root)
{
	if (!root)
		return;
	resolver_table_remove(&lives->roots, &root->node);
	resolver_store_free(store, root, sizeof(*root));
}

static void free_roots(struct resolver_lifetimes *lives, struct resolver_store *store,
		       struct resolver_lifetime *life)
{
	for (size_t i = 0; i < 2; i++) {
		free_root(lives, store, life->roots[i]);
		life->roots[i] = NULL;
	}
}

/* Was it last reported before a loss, and is RECORD from after it? */
static bool is_outdated(const struct resolver_lifetime *life, const struct sideband *record,
			uint64_t lost)
{
	return life->roots[0]->told <= lost && record->time > lost;
}

int resolver_lifetimes_root(struct resolver_lifetimes *lives, struct resolver_store *store,
			    struct resolver_lifetime *life, const struct sideband *record,
			    uint64_t from, uint64_t lost)
{
	uint64_t cr3 = record->cr3 & CR3_ADDRESS;
	int error = 0;

	if (!cr3)
		return 0;
	if (life->roots[0] && life->roots[0]->cr3 != cr3) {
		if (!is_outdated(life, record, lost))
			return 0;
		free_roots(lives, store, life);
	}
	if (!life->roots[0])
		error = add_roots(lives, store, life, record, from);
	for (size_t i = 0; i < 2 && life->roots[i]; i++)
		if (record->time > life->roots[i]->told)
			life->roots[i]->told = record->time;
	return error;
}

/* After a loss, reports from before it may be about another process's page tables. */
static bool is_stale(const struct resolver_root *root, uint64_t time, uint64_t lost)
{
	return lost && (root->told <= lost || time <= lost);
}

uint64_t resolver_lifetime_root(const struct resolver_lifetime *life, uint64_t lost, bool *pair)
{
	const struct resolver_root *root = life->roots[0];

	*pair = life->roots[1];
	return root && (!lost || root->told > lost) ? root->cr3 : 0;
}

/* A vfork() child shares its parent's until it execs or ends, and is the one that runs. */
struct resolver_lifetime *resolver_lifetimes_find_root(const struct resolver_lifetimes *lives,
						       uint64_t cr3, uint64_t time, uint64_t lost)
{
	const struct resolver_root *found = NULL;
	struct resolver_node *node;

	cr3 &= CR3_ADDRESS;
	node = resolver_table_first(&lives->roots, hash_mix(0, cr3));
	for (; node; node = resolver_table_next(node)) {
		const struct resolver_root *root = (const void *)node;

		if (root->cr3 == cr3 && root->from <= time && time < root->life->died &&
		    !is_stale(root, time, lost) && (!found || root->from > found->from))
			found = root;
	}
	return found ? found->life : NULL;
}

void resolver_lifetimes_changed(struct resolver_lifetimes *lives, struct resolver_lifetime *life)
{
	if (life->in_past || !resolver_space_has_past(&life->space))
		return;
	life->in_past = true;
	life->next_past = lives->past;
	lives->past = life;
}

static void unlink_life(struct resolver_lifetimes *lives, struct resolver_store *store,
			struct resolver_lifetime *life)
{
	struct resolver_process *process = life->process;

	if (life->newer)
		life->newer->older = life->older;
	else
		process->newest = life->older;
	if (life->older)
		life->older->newer = life->newer;
	if (process->newest)
		return;
	resolver_table_remove(&lives->processes, &process->node);
	resolver_store_free(store, process, sizeof(*process));
}

static void free_life(struct resolver_lifetimes *lives, struct resolver_store *store,
		      struct resolver_lifetime *life)
{
	unlink_life(lives, store, life);
	free_roots(lives, store, life);
	resolver_space_free(&life->space, store);
	resolver_store_free(store, life, sizeof(*life));
	lives->kept--;
}

/* Lifetimes that are about to be freed leave this list, too. */
static void forget_mappings(struct resolver_lifetimes *lives, struct resolver_store *store,
			    uint64_t horizon)
{
	struct resolver_lifetime **link = &lives->past, *life;

	while ((life = *link)) {
		resolver_space_forget(&life->space, store, horizon);
		life->in_past = life->died > horizon && resolver_space_has_past(&life->space);
		if (life->in_past)
			link = &life->next_past;
		else
			*link = life->next_past;
	}
}

static void empty_mortuary(struct resolver_lifetimes *lives, struct resolver_store *store,
			   uint64_t horizon)
{
	struct resolver_lifetime **link = &lives->dead, *life;

	while ((life = *link)) {
		if (life->died > horizon) {
			link = &life->next_dead;
			continue;
		}
		*link = life->next_dead;
		free_life(lives, store, life);
	}
}

void resolver_lifetimes_forget(struct resolver_lifetimes *lives, struct resolver_store *store,
			       uint64_t horizon)
{
	forget_mappings(lives, store, horizon);
	empty_mortuary(lives, store, horizon);
}

void resolver_lifetimes_free(struct resolver_lifetimes *lives, struct resolver_store *store)
{
	for (size_t i = 0; i < lives->processes.capacity; i++)
		while (lives->processes.chains[i])
			free_life(lives, store,
				  ((struct resolver_process *)lives->processes.chains[i])->newest);
	resolver_table_free(&lives->processes, store->account);
	resolver_table_free(&lives->roots, store->account);
}
