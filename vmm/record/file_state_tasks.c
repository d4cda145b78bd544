/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/hash.h"
#include "vmm/record/file_state_parts.h"

/* Ids are given one after the other, so low bits distinguish those in use. Only touched pages of
 * these tables take memory. */
#define NAMES   (1u << 16)
#define CGROUPS 16384u

#define PAGE_SHIFT 12
/* With four or five levels: bits 51 to 12. */
#define ROOT_MASK 0x000ffffffffff000ull
/* Process ids are positive for perf. */
#define ROOT_END   (UINT64_C(4) << 40)
#define ROOT_SLOTS (2ul * FILE_ROOTS_MAX)
/* After the ids of vCPUs. */
#define FIRST_PID (SAMPLE_TASK_LIMIT + (1u << 16))

_Static_assert(FIRST_PID + (ROOT_END >> PAGE_SHIFT) <= INT32_MAX, "perf has such a process id");

struct task_name {
	uint64_t since; /* ns; of the latest name */
	uint32_t pid, tid;
	bool written;
	bool inherited; /* NAME is not known */
	char name[SAMPLE_COMM_SIZE];
};

struct file_tasks {
	uint32_t started[SAMPLE_TASK_LIMIT]; /* in us, never 0 except where nothing was written */
	struct task_name names[NAMES];
	uint64_t cgroups[CGROUPS];
	uint64_t roots[ROOT_SLOTS]; /* addresses of page tables, open addressing; 0: free */
	size_t root_count;
	uint64_t refused_roots;
};

struct file_tasks *file_tasks_new(void)
{
	return calloc(1, sizeof(struct file_tasks));
}

void file_tasks_free(struct file_tasks *tasks)
{
	free(tasks);
}

/* An id is reused after all others: neither within 1 us, nor exactly 71 minutes later. */
bool file_tasks_start_due(struct file_tasks *tasks, uint32_t tid, uint64_t started)
{
	uint32_t mark = (uint32_t)(started / 1000) | 1u << 31;

	assert(tid < SAMPLE_TASK_LIMIT && started);
	if (tasks->started[tid] == mark)
		return false;
	tasks->started[tid] = mark;
	return true;
}

static bool is_of(const struct task_name *known, uint32_t pid, uint32_t tid)
{
	return known->written && known->pid == pid && known->tid == tid;
}

/* A late name holds for its own time only: the latest one stays. */
bool file_tasks_name_due(struct file_tasks *tasks, uint32_t pid, uint32_t tid, uint64_t time,
			 const char *name)
{
	struct task_name *known = &tasks->names[tid % NAMES];

	if (is_of(known, pid, tid) && time < known->since)
		return true;
	if (is_of(known, pid, tid) && !known->inherited && !strcmp(known->name, name))
		return false;
	*known = (struct task_name){ .since = time, .pid = pid, .tid = tid, .written = true };
	snprintf(known->name, sizeof(known->name), "%s", name);
	return true;
}

void file_tasks_fork(struct file_tasks *tasks, uint32_t pid, uint32_t tid, uint64_t time)
{
	struct task_name *known = &tasks->names[tid % NAMES];

	if (is_of(known, pid, tid) && time < known->since)
		return;
	*known = (struct task_name){
		.since = time, .pid = pid, .tid = tid, .written = true, .inherited = true
	};
}

bool file_tasks_cgroup_due(struct file_tasks *tasks, uint64_t id)
{
	uint64_t *slot = &tasks->cgroups[id % CGROUPS];

	assert(id);
	if (*slot == id)
		return false;
	*slot = id;
	return true;
}

/* Its slot, or the one where it belongs: half of them are free. */
static uint64_t *find_root(struct file_tasks *tasks, uint64_t address)
{
	uint64_t hash = hash_mix(0, address);

	while (tasks->roots[hash % ROOT_SLOTS] && tasks->roots[hash % ROOT_SLOTS] != address)
		hash++;
	return &tasks->roots[hash % ROOT_SLOTS];
}

uint32_t file_tasks_root_pid(struct file_tasks *tasks, uint64_t cr3, bool *first)
{
	uint64_t address = cr3 & ROOT_MASK, *slot;

	*first = false;
	if (!address)
		return 0;
	slot = find_root(tasks, address);
	if (address >= ROOT_END || (!*slot && tasks->root_count == FILE_ROOTS_MAX)) {
		tasks->refused_roots++;
		return 0;
	}
	*first = !*slot;
	tasks->root_count += *first;
	*slot = address;
	return FIRST_PID + (uint32_t)(address >> PAGE_SHIFT);
}

void file_tasks_root_name(uint64_t cr3, char name[SAMPLE_COMM_SIZE])
{
	cr3 &= ROOT_MASK;
	assert(cr3 < ROOT_END);
	snprintf(name, SAMPLE_COMM_SIZE, "cr3 %" PRIx64, cr3 % ROOT_END);
}

uint64_t file_tasks_refused_roots(const struct file_tasks *tasks)
{
	return tasks->refused_roots;
}
