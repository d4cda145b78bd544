// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/flight_cgroups.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* A cgroup, as the guest told of it last. */
struct named {
	uint64_t id;
	struct sideband_cgroup *record; /* owned */
};

static int compare(const void *left, const void *right)
{
	const struct named *a = left, *b = right;

	return a->id < b->id ? -1 : a->id > b->id;
}

static void free_named(void *node)
{
	struct named *named = node;

	free(named->record);
	free(named);
}

static void forget_names(struct flight_cgroups *cgroups)
{
	tdestroy(cgroups->records, free_named);
	cgroups->records = NULL;
	cgroups->count = 0;
}

static struct named *find(const struct flight_cgroups *cgroups, uint64_t id)
{
	const struct named key = { .id = id };
	void *found = tfind(&key, &cgroups->records, compare);

	return found ? *(struct named **)found : NULL;
}

static struct named *need(struct flight_cgroups *cgroups, uint64_t id)
{
	struct named *named = find(cgroups, id);

	if (named)
		return named;
	if (cgroups->count == FLIGHT_CGROUPS_MAX)
		forget_names(cgroups);
	named = calloc(1, sizeof(*named));
	if (!named)
		return NULL;
	named->id = id;
	if (!tsearch(named, &cgroups->records, compare)) {
		free(named);
		return NULL;
	}
	cgroups->count++;
	return named;
}

static int take_name(struct flight_cgroups *cgroups, const struct sideband_cgroup *record)
{
	struct sideband_cgroup *copy = malloc(record->head.size);
	struct named *named = copy ? need(cgroups, process_cgroups_id(record)) : NULL;

	if (!named) {
		free(copy);
		return -ENOMEM;
	}
	memcpy(copy, record, record->head.size);
	free(named->record);
	named->record = copy;
	return 0;
}

int flight_cgroups_take(struct flight_cgroups *cgroups, const struct sideband *record)
{
	if (!cgroups->processes && record->type != SIDEBAND_CGROUP)
		return 0;
	if (!cgroups->processes)
		cgroups->processes = process_cgroups_new();
	if (!cgroups->processes)
		return -ENOMEM;
	process_cgroups_take(cgroups->processes, record);
	return record->type == SIDEBAND_CGROUP ? take_name(cgroups, (const void *)record) : 0;
}

const struct sideband_cgroup *flight_cgroups_of(const struct flight_cgroups *cgroups, uint32_t pid)
{
	uint64_t id = cgroups->processes ? process_cgroups_of(cgroups->processes, pid) : 0;
	const struct named *named = id ? find(cgroups, id) : NULL;

	return named ? named->record : NULL;
}

void flight_cgroups_free(struct flight_cgroups *cgroups)
{
	forget_names(cgroups);
	process_cgroups_free(cgroups->processes);
	*cgroups = (struct flight_cgroups){ 0 };
}
