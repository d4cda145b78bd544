/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/flight_sideband.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"

/* Bytes below which advancing the base is not worthwhile. */
#define DUE_MIN (1ul << 20)
/* A tree node, which tsearch(3) allocates: three pointers and malloc's overhead. */
#define NODE_COST 48u

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

/* --- cgroups of the base ---------------------------------------------------------- */

static int compare_cgroups(const void *left, const void *right)
{
	const struct sideband_cgroup *a = left, *b = right;

	return a->id < b->id ? -1 : a->id > b->id;
}

static size_t cgroup_cost(const struct sideband_cgroup *record)
{
	return record->head.size + NODE_COST;
}

static void drop_cgroups(struct flight_sideband *sideband)
{
	while (sideband->cgroups) {
		struct sideband_cgroup *record = *(struct sideband_cgroup **)sideband->cgroups;

		tdelete(record, &sideband->cgroups, compare_cgroups);
		guest_account_free(account_of(sideband), record, cgroup_cost(record));
	}
	sideband->cgroup_count = 0;
}

/* Keeps a copy in place of the earlier record of the same cgroup. False: no memory. */
static bool keep_cgroup(struct flight_sideband *sideband, const struct sideband_cgroup *record)
{
	struct guest_account *account = account_of(sideband);
	struct sideband_cgroup *copy = guest_account_new(account, cgroup_cost(record)), **known;

	if (!copy)
		return false;
	memcpy(copy, record, record->head.size);
	copy->id = process_cgroups_id(record);
	known = tfind(copy, &sideband->cgroups, compare_cgroups);
	if (!known && sideband->cgroup_count == FLIGHT_CGROUPS_MAX)
		drop_cgroups(sideband);
	if (known) {
		guest_account_free(account, *known, cgroup_cost(*known));
		*known = copy;
	} else if (tsearch(copy, &sideband->cgroups, compare_cgroups)) {
		sideband->cgroup_count++;
	} else {
		guest_account_free(account, copy, cgroup_cost(copy));
		return false;
	}
	return true;
}

/* False: no memory. */
static bool apply_cgroup(struct flight_sideband *sideband, const struct sideband *record)
{
	if (!sideband->process_cgroups && record->type != SIDEBAND_CGROUP)
		return true;
	if (!sideband->process_cgroups)
		sideband->process_cgroups = process_cgroups_new(account_of(sideband));
	if (!sideband->process_cgroups)
		return false;
	process_cgroups_apply(sideband->process_cgroups, record);
	return record->type != SIDEBAND_CGROUP || keep_cgroup(sideband, (const void *)record);
}

/* The latest record of the cgroup of process PID, whichever process it names; NULL: unknown. */
static const struct sideband_cgroup *cgroup_of(const struct flight_sideband *sideband, uint32_t pid)
{
	const struct process_cgroups *processes = sideband->process_cgroups;
	const struct sideband_cgroup key = { .id = processes ? process_cgroups_of(processes, pid)
							     : 0 };
	struct sideband_cgroup **found =
		key.id ? tfind(&key, &sideband->cgroups, compare_cgroups) : NULL;

	return found ? *found : NULL;
}

/* --- the base, and the records since ---------------------------------------------- */

/* False: no memory. */
static bool apply_to_base(struct flight_sideband *sideband, const struct sideband *record)
{
	const struct sideband_lost *lost = (const void *)record;
	int error = resolver_processes_apply(&sideband->base, record);

	if (record->type == SIDEBAND_LOST)
		sideband->lost = time_later(sideband->lost, lost->until);
	if (error)
		sideband->lost = time_later(sideband->lost, record->time);
	return !error && apply_cgroup(sideband, record);
}

/* A late report of a loss still counts. */
static void count_late(struct flight_sideband *sideband, const struct sideband *record)
{
	if (record->type != SIDEBAND_LOST || !apply_to_base(sideband, record))
		sideband->missed++;
}

void flight_sideband_keep(struct flight_sideband *sideband, const struct sideband *record)
{
	struct sideband *copy;

	if (record->time < sideband->base_time) {
		count_late(sideband, record);
		return;
	}
	copy = guest_account_new(account_of(sideband), record->size);
	if (!copy || !make_room(sideband)) {
		guest_account_free(account_of(sideband), copy, record->size);
		sideband->lost = time_later(sideband->lost, record->time);
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
static void advance_base(struct flight_sideband *sideband, uint64_t horizon)
{
	size_t taken = 0;

	for (; taken < sideband->count && sideband->entries[taken].record->time < horizon;
	     taken++) {
		struct sideband *record = sideband->entries[taken].record;

		sideband->missed += !apply_to_base(sideband, record);
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
		advance_base(sideband, horizon);
	if (sideband->bytes > FLIGHT_SIDEBAND_MAX)
		advance_base(sideband, sideband->entries[sideband->count / 2].record->time);
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
	drop_cgroups(sideband);
	process_cgroups_free(sideband->process_cgroups);
	*sideband = (struct flight_sideband){ .base.store.account = account };
}

/* --- the base as records ---------------------------------------------------------- */

struct exporter {
	const struct flight_sideband *sideband;
	struct flight_sideband_list *list;
	const struct resolver_lifetime **lifetimes; /* alive at the base's time, by number; owned */
	size_t count;
	bool failed; /* no memory */
};

/* Appends a zeroed record of SIZE bytes; NULL without memory. */
static void *add(struct exporter *exporter, enum sideband_type type, uint32_t size)
{
	struct flight_sideband_list *list = exporter->list;
	struct sideband *record = calloc(1, size);

	if (!record || array_reserve(&list->records, &list->room, list->count + 1)) {
		free(record);
		exporter->failed = true;
		return NULL;
	}
	*record = sideband_head(type, size, exporter->sideband->base_time, 0);
	list->records[list->count++] = record;
	list->owned++;
	return record;
}

/* Page tables that may belong to another process by now are left out. */
static void set_process(const struct exporter *exporter, struct sideband *head,
			const struct resolver_lifetime *lifetime, uint32_t tid)
{
	bool pair;

	head->pid = lifetime->process->pid;
	head->tid = tid;
	head->cr3 = resolver_lifetime_root(lifetime, exporter->sideband->lost, &pair);
	head->flags = head->cr3 && pair ? SIDEBAND_CR3_PAIR : 0;
}

/* Stale reports keep their time. */
static void set_time(const struct exporter *exporter, struct sideband *head, uint64_t reported)
{
	if (reported <= exporter->sideband->lost)
		head->time = reported;
}

/* False: it has no known name. */
static bool add_name(struct exporter *exporter, const struct resolver_lifetime *lifetime,
		     uint32_t tid)
{
	struct resolver_name name = resolver_threads_name_of(&exporter->sideband->base.threads, tid,
							     exporter->sideband->base_time);
	struct sideband_comm *comm =
		*name.comm ? add(exporter, SIDEBAND_COMM, sizeof(*comm)) : NULL;

	if (comm) {
		set_process(exporter, &comm->head, lifetime, tid);
		set_time(exporter, &comm->head, name.reported);
		snprintf(comm->comm, sizeof(comm->comm), "%s", name.comm);
	}
	return *name.comm;
}

/* The protection is not kept: written as code, so that readers look there. */
static void add_mapping(struct exporter *exporter, const struct resolver_lifetime *lifetime,
			const struct resolver_piece *piece, uint32_t tid)
{
	const struct resolver_image *image = piece->image;
	struct sideband_mmap *mmap =
		add(exporter, SIDEBAND_MMAP, sideband_size(sizeof(*mmap), image->name));

	if (!mmap)
		return;
	set_process(exporter, &mmap->head, lifetime, tid);
	set_time(exporter, &mmap->head, piece->from);
	mmap->start = piece->start;
	mmap->length = piece->end - piece->start;
	mmap->offset = piece->offset;
	mmap->prot = PROT_READ | PROT_EXEC;
	resolver_image_describe(image, mmap);
}

static void add_cgroup(struct exporter *exporter, const struct resolver_lifetime *lifetime)
{
	const struct sideband_cgroup *known = cgroup_of(exporter->sideband, lifetime->process->pid);
	struct sideband_cgroup *cgroup =
		known ? add(exporter, SIDEBAND_CGROUP, known->head.size) : NULL;

	if (!cgroup)
		return;
	set_process(exporter, &cgroup->head, lifetime, lifetime->process->pid);
	cgroup->id = process_cgroups_id_is_made(known->id) ? 0 : known->id;
	memcpy(cgroup->path, known->path, known->head.size - sizeof(*cgroup));
}

static void add_process(struct exporter *exporter, const struct resolver_lifetime *lifetime)
{
	add_name(exporter, lifetime, lifetime->process->pid);
	add_cgroup(exporter, lifetime);
	for (size_t i = 0; i < lifetime->space.count; i++)
		if (lifetime->space.pieces[i].image)
			add_mapping(exporter, lifetime, &lifetime->space.pieces[i],
				    lifetime->process->pid);
}

/* Any record of a thread makes it known. */
static void add_nameless(struct exporter *exporter, const struct resolver_lifetime *lifetime,
			 uint32_t tid)
{
	for (size_t i = 0; i < lifetime->space.count; i++)
		if (lifetime->space.pieces[i].image) {
			add_mapping(exporter, lifetime, &lifetime->space.pieces[i], tid);
			return;
		}
}

/* A process outlives its first thread, but its records make readers assume that thread alive. */
static void add_end_of_first(struct exporter *exporter, const struct resolver_lifetime *lifetime)
{
	uint32_t pid = lifetime->process->pid;
	const struct resolver_thread *first =
		resolver_threads_find(&exporter->sideband->base.threads, pid);
	struct sideband *end;

	if (first && first->lifetime == lifetime->number)
		return;
	end = add(exporter, SIDEBAND_EXIT, sizeof(*end));
	if (end)
		set_process(exporter, end, lifetime, pid);
}

static void add_lost(struct exporter *exporter)
{
	struct sideband_lost *lost =
		exporter->sideband->lost ? add(exporter, SIDEBAND_LOST, sizeof(*lost)) : NULL;

	if (!lost)
		return;
	lost->until = exporter->sideband->lost;
	if (lost->until < lost->head.time)
		lost->head.time = lost->until;
}

static void add_module(struct exporter *exporter, const struct resolver_piece *piece)
{
	const struct resolver_image *image = piece->image;
	struct sideband_module *module;

	if (!image)
		return;
	module = add(exporter, SIDEBAND_MODULE_LOAD, sideband_size(sizeof(*module), image->name));
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
	const struct resolver_lifetime *lifetime =
		((const struct resolver_process *)process)->newest;

	return lifetime && lifetime->died == UINT64_MAX ? lifetime : NULL;
}

static int compare_lifetimes(const void *left, const void *right)
{
	const struct resolver_lifetime *a = *(const struct resolver_lifetime *const *)left;
	const struct resolver_lifetime *b = *(const struct resolver_lifetime *const *)right;

	return a->number < b->number ? -1 : a->number > b->number;
}

static int find_processes(struct exporter *exporter)
{
	const struct resolver_table *table = &exporter->sideband->base.lifetimes.processes;

	exporter->lifetimes = calloc(table->count + 1, sizeof(struct resolver_lifetime *));
	if (!exporter->lifetimes)
		return -ENOMEM;
	for (size_t i = 0; i < table->capacity; i++)
		for (const struct resolver_node *node = table->chains[i]; node; node = node->next)
			if (living(node))
				exporter->lifetimes[exporter->count++] = living(node);
	qsort(exporter->lifetimes, exporter->count, sizeof(struct resolver_lifetime *),
	      compare_lifetimes);
	return 0;
}

static void add_thread(struct exporter *exporter, const struct resolver_thread *thread)
{
	const struct resolver_lifetime key = { .number = thread->lifetime }, *sought = &key;
	const struct resolver_lifetime **lifetime =
		bsearch(&sought, exporter->lifetimes, exporter->count,
			sizeof(struct resolver_lifetime *), compare_lifetimes);

	/* The first thread of each process was written by add_process(). */
	if (lifetime && (*lifetime)->process->pid != thread->tid &&
	    !add_name(exporter, *lifetime, thread->tid))
		add_nameless(exporter, *lifetime, thread->tid);
}

static void add_threads(struct exporter *exporter)
{
	const struct resolver_table *table = &exporter->sideband->base.threads.table;

	for (size_t i = 0; i < table->capacity; i++)
		for (const struct resolver_node *node = table->chains[i]; node; node = node->next)
			add_thread(exporter, (const struct resolver_thread *)node);
}

static int export_base(const struct flight_sideband *sideband, struct flight_sideband_list *list)
{
	struct exporter exporter = { .sideband = sideband, .list = list };

	if (find_processes(&exporter))
		return -ENOMEM;
	add_lost(&exporter);
	for (size_t i = 0; i < sideband->base.kernel.count; i++)
		add_module(&exporter, &sideband->base.kernel.pieces[i]);
	for (size_t i = 0; i < exporter.count; i++)
		add_process(&exporter, exporter.lifetimes[i]);
	add_threads(&exporter);
	for (size_t i = 0; i < exporter.count; i++)
		add_end_of_first(&exporter, exporter.lifetimes[i]);
	free(exporter.lifetimes);
	return exporter.failed ? -ENOMEM : 0;
}

int flight_sideband_export(struct flight_sideband *sideband, struct flight_sideband_list *list)
{
	*list = (struct flight_sideband_list){ 0 };
	if (export_base(sideband, list) ||
	    array_reserve(&list->records, &list->room, list->count + sideband->count))
		return error_set(-ENOMEM, "no memory for the state of the guest's processes");
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
