/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/flight_cgroups.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* With its tree node, which tsearch(3) allocates: three pointers and malloc's overhead. */
#define NAMED_COST (sizeof(struct named) + 48)

/* The latest report of a cgroup. */
struct named {
	uint64_t id;
	struct sideband_cgroup *record; /* owned */
};

static int compare(const void *left, const void *right)
{
	const struct named *a = left, *b = right;

	return a->id < b->id ? -1 : a->id > b->id;
}

static void free_record(struct guest_account *account, struct sideband_cgroup *record)
{
	if (record)
		guest_account_free(account, record, record->head.size);
}

static void forget_names(struct flight_cgroups *cgroups, struct guest_account *account)
{
	while (cgroups->records) {
		struct named *named = *(struct named **)cgroups->records;

		tdelete(named, &cgroups->records, compare);
		free_record(account, named->record);
		guest_account_free(account, named, NAMED_COST);
	}
	cgroups->count = 0;
}

static struct named *find(const struct flight_cgroups *cgroups, uint64_t id)
{
	const struct named key = { .id = id };
	void *found = tfind(&key, &cgroups->records, compare);

	return found ? *(struct named **)found : NULL;
}

static struct named *need(struct flight_cgroups *cgroups, struct guest_account *account,
			  uint64_t id)
{
	struct named *named = find(cgroups, id);

	if (named)
		return named;
	if (cgroups->count == FLIGHT_CGROUPS_MAX)
		forget_names(cgroups, account);
	named = guest_account_new(account, NAMED_COST);
	if (!named)
		return NULL;
	named->id = id;
	if (!tsearch(named, &cgroups->records, compare)) {
		guest_account_free(account, named, NAMED_COST);
		return NULL;
	}
	cgroups->count++;
	return named;
}

static int take_name(struct flight_cgroups *cgroups, struct guest_account *account,
		     const struct sideband_cgroup *record)
{
	struct sideband_cgroup *copy = guest_account_new(account, record->head.size);
	struct named *named = copy ? need(cgroups, account, process_cgroups_id(record)) : NULL;

	if (!named) {
		guest_account_free(account, copy, record->head.size);
		return -ENOMEM;
	}
	memcpy(copy, record, record->head.size);
	free_record(account, named->record);
	named->record = copy;
	return 0;
}

int flight_cgroups_apply(struct flight_cgroups *cgroups, const struct sideband *record,
			 struct guest_account *account)
{
	if (!cgroups->processes && record->type != SIDEBAND_CGROUP)
		return 0;
	if (!cgroups->processes)
		cgroups->processes = process_cgroups_new(account);
	if (!cgroups->processes)
		return -ENOMEM;
	process_cgroups_apply(cgroups->processes, record);
	return record->type == SIDEBAND_CGROUP ? take_name(cgroups, account, (const void *)record)
					       : 0;
}

const struct sideband_cgroup *flight_cgroups_of(const struct flight_cgroups *cgroups, uint32_t pid)
{
	uint64_t id = cgroups->processes ? process_cgroups_of(cgroups->processes, pid) : 0;
	const struct named *named = id ? find(cgroups, id) : NULL;

	return named ? named->record : NULL;
}

void flight_cgroups_free(struct flight_cgroups *cgroups, struct guest_account *account)
{
	forget_names(cgroups, account);
	process_cgroups_free(cgroups->processes);
	*cgroups = (struct flight_cgroups){ 0 };
}
