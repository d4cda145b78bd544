/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/task_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than the threads of most guests; 2.5 MiB, of which only what is used is ever touched. */
#define PLACES (1u << 16)

struct task_name {
	uint64_t since; /* ns; of the latest name */
	uint32_t pid, tid;
	bool written;
	bool inherited; /* NAME is not known */
	char name[SAMPLE_COMM_SIZE];
};

struct task_names {
	struct task_name places[PLACES]; /* ids are given one after the other: the low bits tell
					    them apart */
};

struct task_names *task_names_new(void)
{
	return calloc(1, sizeof(struct task_names));
}

void task_names_free(struct task_names *names)
{
	free(names);
}

static bool is_written(const struct task_name *known, uint32_t pid, uint32_t tid, uint64_t time,
		       const char *name)
{
	return known->written && !known->inherited && known->pid == pid && known->tid == tid &&
	       time >= known->since && !strcmp(known->name, name);
}

/* A name that is told late is true for its time only: the latest stays. */
bool task_names_due(struct task_names *names, uint32_t pid, uint32_t tid, uint64_t time,
		    const char *name)
{
	struct task_name *known = &names->places[tid % PLACES];

	if (is_written(known, pid, tid, time, name))
		return false;
	if (known->written && known->pid == pid && known->tid == tid && time < known->since)
		return true;
	*known = (struct task_name){ .since = time, .pid = pid, .tid = tid, .written = true };
	snprintf(known->name, sizeof(known->name), "%s", name);
	return true;
}

void task_names_fork(struct task_names *names, uint32_t pid, uint32_t tid, uint64_t time)
{
	struct task_name *known = &names->places[tid % PLACES];

	if (known->written && known->pid == pid && known->tid == tid && time < known->since)
		return;
	*known = (struct task_name){
		.since = time, .pid = pid, .tid = tid, .written = true, .inherited = true
	};
}
