/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/flight_sideband.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shared/error.h"

/* Bytes below which advancing the base is not worthwhile. */
#define DUE_MIN (1ul << 20)

static struct guest_account *account_of(const struct flight_sideband *sideband)
{
	return sideband->base.store.account;
}

static bool make_room(struct flight_sideband *sideband)
{
	size_t room = sideband->room ? 2 * sideband->room : 1024;
	struct flight_sideband_entry *larger;

	if (sideband->count < sideband->room)
		return true;
	larger = guest_account_resize(account_of(sideband), sideband->entries, sizeof(*larger),
				      sideband->room, room);
	if (!larger)
		return false;
	sideband->entries = larger;
	sideband->room = room;
	return true;
}

static void lose(struct flight_sideband *sideband, uint64_t until)
{
	if (until > sideband->lost)
		sideband->lost = until;
}

/* False: no memory. */
static bool take_one_into_base(struct flight_sideband *sideband, const struct sideband *record)
{
	const struct sideband_lost *lost = (const void *)record;
	int error = resolver_processes_apply(&sideband->base, record);

	if (record->type == SIDEBAND_LOST)
		lose(sideband, lost->until);
	if (error)
		lose(sideband, record->time);
	return !error && !flight_cgroups_apply(&sideband->cgroups, record, account_of(sideband));
}

/* A late report of a loss still counts. */
static void keep_late(struct flight_sideband *sideband, const struct sideband *record)
{
	if (record->type != SIDEBAND_LOST || !take_one_into_base(sideband, record))
		sideband->missed++;
}

void flight_sideband_keep(struct flight_sideband *sideband, const struct sideband *record)
{
	struct sideband *copy;

	if (record->time < sideband->base_time) {
		keep_late(sideband, record);
		return;
	}
	copy = guest_account_new(account_of(sideband), record->size);
	if (!copy || !make_room(sideband)) {
		guest_account_free(account_of(sideband), copy, record->size);
		lose(sideband, record->time);
		sideband->missed++;
		return;
	}
	memcpy(copy, record, record->size);
	sideband->entries[sideband->count++] =
		(struct flight_sideband_entry){ copy, sideband->numbers++ };
	sideband->bytes += record->size;
}

static int compare(const void *left, const void *right)
{
	const struct flight_sideband_entry *a = left, *b = right;

	if (a->record->time != b->record->time)
		return a->record->time < b->record->time ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static void sort(struct flight_sideband *sideband)
{
	if (sideband->count)
		qsort(sideband->entries, sideband->count, sizeof(sideband->entries[0]), compare);
}

bool flight_sideband_is_due(const struct flight_sideband *sideband)
{
	return sideband->bytes >= (sideband->due ? sideband->due : DUE_MIN);
}

/* In order of time already. */
static void take_into_base(struct flight_sideband *sideband, uint64_t horizon)
{
	size_t taken = 0;

	for (; taken < sideband->count && sideband->entries[taken].record->time < horizon;
	     taken++) {
		struct sideband *record = sideband->entries[taken].record;

		sideband->missed += !take_one_into_base(sideband, record);
		sideband->bytes -= record->size;
		guest_account_free(account_of(sideband), record, record->size);
	}
	sideband->count -= taken;
	if (taken)
		memmove(sideband->entries, sideband->entries + taken,
			sideband->count * sizeof(sideband->entries[0]));
	sideband->base_time = horizon;
	resolver_processes_forget(&sideband->base, horizon);
}

void flight_sideband_advance(struct flight_sideband *sideband, uint64_t horizon)
{
	sort(sideband);
	if (horizon > sideband->base_time)
		take_into_base(sideband, horizon);
	if (sideband->bytes > FLIGHT_SIDEBAND_MAX)
		take_into_base(sideband, sideband->entries[sideband->count / 2].record->time);
	sideband->due = sideband->bytes * 2 < DUE_MIN ? DUE_MIN : sideband->bytes * 2;
	if (sideband->due > FLIGHT_SIDEBAND_MAX)
		sideband->due = FLIGHT_SIDEBAND_MAX;
}

void flight_sideband_free(struct flight_sideband *sideband)
{
	struct guest_account *account = account_of(sideband);

	for (size_t i = 0; i < sideband->count; i++)
		guest_account_free(account, sideband->entries[i].record,
				   sideband->entries[i].record->size);
	guest_account_free(account, sideband->entries,
			   sideband->room * sizeof(sideband->entries[0]));
	resolver_processes_free(&sideband->base);
	flight_cgroups_free(&sideband->cgroups, account);
	*sideband = (struct flight_sideband){ .base.store.account = account };
}

/* --- the base as records --------------------------------------------------------- */

struct telling {
	const struct flight_sideband *sideband;
	struct flight_sideband_list *list;
	size_t room;
	const struct resolver_lifetime **lives; /* alive at the base's time, by number; owned */
	size_t count;
	bool failed; /* no memory */
};

/* Appends a zeroed record of SIZE bytes; NULL without memory. */
static void *add(struct telling *telling, enum sideband_type type, uint32_t size)
{
	struct flight_sideband_list *list = telling->list;
	struct sideband *record = calloc(1, size);

	if (record && list->count == telling->room) {
		size_t room = telling->room ? 2 * telling->room : 256;
		struct sideband **larger =
			reallocarray(list->records, room, sizeof(struct sideband *));

		if (larger) {
			list->records = larger;
			telling->room = room;
		}
	}
	if (!record || list->count == telling->room) {
		free(record);
		telling->failed = true;
		return NULL;
	}
	record->size = size;
	record->type = type;
	record->time = telling->sideband->base_time;
	list->records[list->count++] = record;
	list->owned++;
	return record;
}

/* Page tables that may belong to another process by now are left out. */
static void set_life(const struct telling *telling, struct sideband *head,
		     const struct resolver_lifetime *life, uint32_t tid)
{
	bool pair;

	head->pid = life->process->pid;
	head->tid = tid;
	head->cr3 = resolver_lifetime_root(life, telling->sideband->lost, &pair);
	head->flags = head->cr3 && pair ? SIDEBAND_CR3_PAIR : 0;
}

/* Stale reports keep their time. */
static void set_told(const struct telling *telling, struct sideband *head, uint64_t told)
{
	if (told <= telling->sideband->lost)
		head->time = told;
}

/* False: it has no known name. */
static bool tell_name(struct telling *telling, const struct resolver_lifetime *life, uint32_t tid)
{
	struct resolver_name name = resolver_threads_name_of(&telling->sideband->base.threads, tid,
							     telling->sideband->base_time);
	struct sideband_comm *comm = *name.comm ? add(telling, SIDEBAND_COMM, sizeof(*comm)) : NULL;

	if (comm) {
		set_life(telling, &comm->head, life, tid);
		set_told(telling, &comm->head, name.told);
		snprintf(comm->comm, sizeof(comm->comm), "%s", name.comm);
	}
	return *name.comm;
}

static uint32_t round_up(size_t size)
{
	return (uint32_t)((size + 7) & ~(size_t)7);
}

/* The protection is not kept: written as code, so that readers look there. */
static void tell_mapping(struct telling *telling, const struct resolver_lifetime *life,
			 const struct resolver_piece *piece, uint32_t tid)
{
	const struct resolver_image *image = piece->image;
	struct sideband_mmap *mmap =
		add(telling, SIDEBAND_MMAP, round_up(sizeof(*mmap) + strlen(image->name) + 1));

	if (!mmap)
		return;
	set_life(telling, &mmap->head, life, tid);
	set_told(telling, &mmap->head, piece->from);
	mmap->start = piece->start;
	mmap->length = piece->end - piece->start;
	mmap->offset = piece->offset;
	mmap->prot = PROT_READ | PROT_EXEC;
	mmap->major = image->major;
	mmap->minor = image->minor;
	mmap->inode = image->inode;
	mmap->generation = image->generation;
	mmap->build_id_size = image->build_id_size;
	memcpy(mmap->build_id, image->build_id, sizeof(mmap->build_id));
	memcpy(mmap->name, image->name, strlen(image->name) + 1);
}

static void tell_cgroup(struct telling *telling, const struct resolver_lifetime *life)
{
	const struct sideband_cgroup *known =
		flight_cgroups_of(&telling->sideband->cgroups, life->process->pid);
	struct sideband_cgroup *cgroup =
		known ? add(telling, SIDEBAND_CGROUP, known->head.size) : NULL;

	if (!cgroup)
		return;
	set_life(telling, &cgroup->head, life, life->process->pid);
	cgroup->id = known->id;
	memcpy(cgroup->path, known->path, known->head.size - sizeof(*cgroup));
}

static void tell_life(struct telling *telling, const struct resolver_lifetime *life)
{
	tell_name(telling, life, life->process->pid);
	tell_cgroup(telling, life);
	for (size_t i = 0; i < life->space.count; i++)
		if (life->space.pieces[i].image)
			tell_mapping(telling, life, &life->space.pieces[i], life->process->pid);
}

/* Any record of a thread makes it known. */
static void tell_nameless(struct telling *telling, const struct resolver_lifetime *life,
			  uint32_t tid)
{
	for (size_t i = 0; i < life->space.count; i++)
		if (life->space.pieces[i].image) {
			tell_mapping(telling, life, &life->space.pieces[i], tid);
			return;
		}
}

/* A process outlives its first thread, but its records make readers assume that thread alive. */
static void tell_end_of_first(struct telling *telling, const struct resolver_lifetime *life)
{
	uint32_t pid = life->process->pid;
	const struct resolver_thread *first =
		resolver_threads_find(&telling->sideband->base.threads, pid);
	struct sideband *end;

	if (first && first->life == life->number)
		return;
	end = add(telling, SIDEBAND_EXIT, sizeof(*end));
	if (end)
		set_life(telling, end, life, pid);
}

static void tell_lost(struct telling *telling)
{
	struct sideband_lost *lost =
		telling->sideband->lost ? add(telling, SIDEBAND_LOST, sizeof(*lost)) : NULL;

	if (!lost)
		return;
	lost->until = telling->sideband->lost;
	if (lost->until < lost->head.time)
		lost->head.time = lost->until;
}

static void tell_module(struct telling *telling, const struct resolver_piece *piece)
{
	const struct resolver_image *image = piece->image;
	struct sideband_module *module;

	if (!image)
		return;
	module = add(telling, SIDEBAND_MODULE_LOAD,
		     round_up(sizeof(*module) + strlen(image->name) + 1));
	if (!module)
		return;
	module->start = piece->start;
	module->length = piece->end - piece->start;
	module->build_id_size = image->build_id_size;
	memcpy(module->build_id, image->build_id, sizeof(module->build_id));
	memcpy(module->name, image->name, strlen(image->name) + 1);
}

static const struct resolver_lifetime *living(const struct resolver_node *process)
{
	const struct resolver_lifetime *life = ((const struct resolver_process *)process)->newest;

	return life && life->died == UINT64_MAX ? life : NULL;
}

static int compare_lives(const void *left, const void *right)
{
	const struct resolver_lifetime *a = *(const struct resolver_lifetime *const *)left;
	const struct resolver_lifetime *b = *(const struct resolver_lifetime *const *)right;

	return a->number < b->number ? -1 : a->number > b->number;
}

static int find_lives(struct telling *telling)
{
	const struct resolver_table *table = &telling->sideband->base.lives.processes;

	telling->lives = calloc(table->count + 1, sizeof(struct resolver_lifetime *));
	if (!telling->lives)
		return -ENOMEM;
	for (size_t i = 0; i < table->capacity; i++)
		for (const struct resolver_node *node = table->chains[i]; node; node = node->next)
			if (living(node))
				telling->lives[telling->count++] = living(node);
	qsort(telling->lives, telling->count, sizeof(struct resolver_lifetime *), compare_lives);
	return 0;
}

static void tell_thread(struct telling *telling, const struct resolver_thread *thread)
{
	const struct resolver_lifetime key = { .number = thread->life }, *sought = &key;
	const struct resolver_lifetime **life =
		bsearch(&sought, telling->lives, telling->count, sizeof(struct resolver_lifetime *),
			compare_lives);

	/* The first thread of each process was written by tell_life(). */
	if (life && (*life)->process->pid != thread->tid && !tell_name(telling, *life, thread->tid))
		tell_nameless(telling, *life, thread->tid);
}

static void tell_threads(struct telling *telling)
{
	const struct resolver_table *table = &telling->sideband->base.threads.table;

	for (size_t i = 0; i < table->capacity; i++)
		for (const struct resolver_node *node = table->chains[i]; node; node = node->next)
			tell_thread(telling, (const struct resolver_thread *)node);
}

static int tell_base(const struct flight_sideband *sideband, struct flight_sideband_list *list)
{
	struct telling telling = { .sideband = sideband, .list = list };

	if (find_lives(&telling))
		return -ENOMEM;
	tell_lost(&telling);
	for (size_t i = 0; i < sideband->base.kernel.count; i++)
		tell_module(&telling, &sideband->base.kernel.pieces[i]);
	for (size_t i = 0; i < telling.count; i++)
		tell_life(&telling, telling.lives[i]);
	tell_threads(&telling);
	for (size_t i = 0; i < telling.count; i++)
		tell_end_of_first(&telling, telling.lives[i]);
	free(telling.lives);
	return telling.failed ? -ENOMEM : 0;
}

int flight_sideband_export(struct flight_sideband *sideband, struct flight_sideband_list *list)
{
	struct sideband **all;

	*list = (struct flight_sideband_list){ 0 };
	if (tell_base(sideband, list))
		return error_set(-ENOMEM, "no memory for what the guest told of its processes");
	all = reallocarray(list->records, list->count + sideband->count + 1,
			   sizeof(struct sideband *));
	if (!all)
		return error_set(-ENOMEM, "no memory for what the guest told of its processes");
	list->records = all;
	sort(sideband);
	for (size_t i = 0; i < sideband->count; i++)
		list->records[list->count++] = sideband->entries[i].record;
	return 0;
}

void flight_sideband_list_free(struct flight_sideband_list *list)
{
	for (size_t i = 0; i < list->owned; i++)
		free(list->records[i]);
	free(list->records);
	*list = (struct flight_sideband_list){ 0 };
}
