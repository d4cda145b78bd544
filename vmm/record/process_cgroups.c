/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/process_cgroups.h"

#include <stdlib.h>

#include "shared/clock_ns.h"
#include "shared/hash.h"
#include "shared/sample_record.h"

#define MADE (1ull << 63) /* inode numbers of kernfs are far below */

struct slot {
	uint64_t id;   /* 0: unknown */
	uint64_t time; /* of the latest record about the process */
};

/* Ids are given one after the other: those of a page are used together. */
#define PAGE_SLOTS 256u

struct page {
	struct slot slots[PAGE_SLOTS];
};

struct process_cgroups {
	struct guest_account *account;
	uint64_t lost; /* ns: reports up to this time are stale */
	struct page *pages[SAMPLE_TASK_LIMIT / PAGE_SLOTS];
};

struct process_cgroups *process_cgroups_new(struct guest_account *account)
{
	struct process_cgroups *cgroups = calloc(1, sizeof(*cgroups));

	if (cgroups)
		cgroups->account = account;
	return cgroups;
}

void process_cgroups_free(struct process_cgroups *cgroups)
{
	for (uint32_t i = 0; cgroups && i < SAMPLE_TASK_LIMIT / PAGE_SLOTS; i++)
		guest_account_free(cgroups->account, cgroups->pages[i], sizeof(struct page));
	free(cgroups);
}

/* NULL: none. */
static struct slot *find(const struct process_cgroups *cgroups, uint32_t pid)
{
	struct page *page = cgroups->pages[pid / PAGE_SLOTS];

	return page ? &page->slots[pid % PAGE_SLOTS] : NULL;
}

static struct slot *need(struct process_cgroups *cgroups, uint32_t pid)
{
	struct page **page = &cgroups->pages[pid / PAGE_SLOTS];

	if (!*page)
		*page = guest_account_new(cgroups->account, sizeof(**page));
	return find(cgroups, pid);
}

uint64_t process_cgroups_id(const struct sideband_cgroup *record)
{
	uint64_t id = record->id & ~MADE;

	return id ? id : hash_add_text(HASH_START, record->path) | MADE;
}

bool process_cgroups_id_is_made(uint64_t id)
{
	return id & MADE;
}

static void set(struct process_cgroups *cgroups, const struct sideband *record, uint64_t id)
{
	struct slot *slot = id ? need(cgroups, record->pid) : find(cgroups, record->pid);

	/* A late record is about an earlier process of this id. */
	if (slot && record->time >= slot->time)
		*slot = (struct slot){ id, record->time };
}

void process_cgroups_apply(struct process_cgroups *cgroups, const struct sideband *record)
{
	const struct sideband_fork *fork = (const void *)record;
	const struct sideband_lost *lost = (const void *)record;

	if (record->type == SIDEBAND_LOST)
		cgroups->lost = time_later(cgroups->lost, lost->until);
	if (record->type == SIDEBAND_LOST || record->pid >= SAMPLE_TASK_LIMIT)
		return;
	if (record->type == SIDEBAND_CGROUP)
		set(cgroups, record, process_cgroups_id((const void *)record));
	else if (record->type == SIDEBAND_FORK && fork->parent_pid != record->pid)
		set(cgroups, record, process_cgroups_of(cgroups, fork->parent_pid));
	else if (record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC)
		set(cgroups, record, 0);
	else if (record->type == SIDEBAND_EXIT && record->pid == record->tid)
		set(cgroups, record, 0);
}

uint64_t process_cgroups_of(const struct process_cgroups *cgroups, uint32_t pid)
{
	const struct slot *slot = pid < SAMPLE_TASK_LIMIT ? find(cgroups, pid) : NULL;

	return slot && slot->time > cgroups->lost ? slot->id : 0;
}
