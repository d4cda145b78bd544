// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/process_cgroups.h"

#include <stdlib.h>

#include "shared/sample.h"

#define MADE (1ull << 63) /* inode numbers of kernfs are far below */

struct process_cgroups {
	uint64_t ids[SAMPLE_TASK_LIMIT];
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
	return record->id ? record->id & ~MADE : hash(record->path) | MADE;
}

bool process_cgroups_id_is_made(uint64_t id)
{
	return id & MADE;
}

void process_cgroups_take(struct process_cgroups *cgroups, const struct sideband *record)
{
	const struct sideband_fork *fork = (const void *)record;

	if (record->pid >= SAMPLE_TASK_LIMIT)
		return;
	if (record->type == SIDEBAND_CGROUP)
		cgroups->ids[record->pid] = process_cgroups_id((const void *)record);
	else if (record->type == SIDEBAND_FORK && fork->parent_pid != record->pid)
		cgroups->ids[record->pid] = process_cgroups_of(cgroups, fork->parent_pid);
}

uint64_t process_cgroups_of(const struct process_cgroups *cgroups, uint32_t pid)
{
	return pid < SAMPLE_TASK_LIMIT ? cgroups->ids[pid] : 0;
}
