// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/process_cgroups.h"

#include <stdlib.h>

#include "shared/sample.h"

#define MADE (1ull << 63) /* inode numbers of kernfs are far below */

struct place {
	uint64_t id;   /* 0: nobody told */
	uint64_t time; /* of the latest record about the process */
};

struct process_cgroups {
	uint64_t lost; /* what was told of this time or an earlier one may be so no more */
	struct place places[SAMPLE_TASK_LIMIT];
};

struct process_cgroups *process_cgroups_new(void)
{
	return calloc(1, sizeof(struct process_cgroups));
}

void process_cgroups_free(struct process_cgroups *cgroups)
{
	free(cgroups);
}

/* FNV-1a of 64 bits. */
static uint64_t hash(const char *text)
{
	uint64_t sum = 14695981039346656037ull;

	for (; *text; text++)
		sum = (sum ^ (uint8_t)*text) * 1099511628211ull;
	return sum;
}

uint64_t process_cgroups_id(const struct sideband_cgroup *record)
{
	uint64_t id = record->id & ~MADE;

	return id ? id : hash(record->path) | MADE;
}

bool process_cgroups_id_is_made(uint64_t id)
{
	return id & MADE;
}

static void put(struct process_cgroups *cgroups, const struct sideband *record, uint64_t id)
{
	struct place *place = &cgroups->places[record->pid];

	/* A record may come late: what is known already is of a later process with the same number. */
	if (record->time >= place->time)
		*place = (struct place){ id, record->time };
}

static void lose(struct process_cgroups *cgroups, const struct sideband_lost *lost)
{
	if (lost->until > cgroups->lost)
		cgroups->lost = lost->until;
}

void process_cgroups_take(struct process_cgroups *cgroups, const struct sideband *record)
{
	const struct sideband_fork *fork = (const void *)record;

	if (record->type == SIDEBAND_LOST)
		lose(cgroups, (const void *)record);
	if (record->type == SIDEBAND_LOST || record->pid >= SAMPLE_TASK_LIMIT)
		return;
	if (record->type == SIDEBAND_CGROUP)
		put(cgroups, record, process_cgroups_id((const void *)record));
	else if (record->type == SIDEBAND_FORK && fork->parent_pid != record->pid)
		put(cgroups, record, process_cgroups_of(cgroups, fork->parent_pid));
	else if (record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC)
		put(cgroups, record, 0);
	else if (record->type == SIDEBAND_EXIT && record->pid == record->tid)
		put(cgroups, record, 0);
}

uint64_t process_cgroups_of(const struct process_cgroups *cgroups, uint32_t pid)
{
	return pid < SAMPLE_TASK_LIMIT && cgroups->places[pid].time > cgroups->lost ? cgroups->places[pid].id
										    : 0;
}
