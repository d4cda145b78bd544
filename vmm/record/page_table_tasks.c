// SPDX-License-Identifier: Apache-2.0
#include "vmm/record/page_table_tasks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE_SHIFT 12
/* Of four or five levels: bits 51 to 12. */
#define ADDRESS_MASK 0x000ffffffffff000ull
/* Process ids are positive to perf. */
#define ADDRESS_END (UINT64_C(4) << 40)
/* Behind those of vCPUs. */
#define FIRST_PID (SAMPLE_TASK_LIMIT + (1u << 16))
#define PLACES    (2ul * PAGE_TABLE_TASKS_MAX)

_Static_assert(FIRST_PID + (ADDRESS_END >> PAGE_SHIFT) <= INT32_MAX, "perf has such a process id");

struct page_table_tasks {
	size_t count;
	uint64_t refused;
	uint64_t places[PLACES]; /* the addresses, by open addressing; 0: free */
};

struct page_table_tasks *page_table_tasks_new(void)
{
	return calloc(1, sizeof(struct page_table_tasks));
}

void page_table_tasks_free(struct page_table_tasks *tasks)
{
	free(tasks);
}

/* Its place, or that where it belongs: half of them are free. */
static uint64_t *find(struct page_table_tasks *tasks, uint64_t address)
{
	uint64_t hash = (address >> PAGE_SHIFT) * 0x9e3779b97f4a7c15ull >> 32;

	while (tasks->places[hash % PLACES] && tasks->places[hash % PLACES] != address)
		hash++;
	return &tasks->places[hash % PLACES];
}

uint32_t page_table_tasks_pid(struct page_table_tasks *tasks, uint64_t cr3, bool *first)
{
	uint64_t address = cr3 & ADDRESS_MASK, *place;

	*first = false;
	if (!address)
		return 0;
	place = find(tasks, address);
	if (address >= ADDRESS_END || (!*place && tasks->count == PAGE_TABLE_TASKS_MAX)) {
		tasks->refused++;
		return 0;
	}
	*first = !*place;
	tasks->count += *first;
	*place = address;
	return FIRST_PID + (uint32_t)(address >> PAGE_SHIFT);
}

void page_table_tasks_name(uint64_t cr3, char name[SAMPLE_COMM_SIZE])
{
	cr3 &= ADDRESS_MASK;
	assert(cr3 < ADDRESS_END);
	snprintf(name, SAMPLE_COMM_SIZE, "cr3 %" PRIx64, cr3 % ADDRESS_END);
}

uint64_t page_table_tasks_refused(const struct page_table_tasks *tasks)
{
	return tasks->refused;
}
