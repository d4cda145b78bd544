/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of a guest that is no Linux. Nothing tells which there are:
 * each page tables in CR3 are one, which has their address for a name. One thread at a
 * time.
 */
#ifndef KVMSCOPE_RECORD_PAGE_TABLE_TASKS_H
#define KVMSCOPE_RECORD_PAGE_TABLE_TASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sample_record.h"

/* A guest may have as many as it likes; readers keep something of each process. */
#define PAGE_TABLE_TASKS_MAX 1024u

struct page_table_tasks;

/* NULL without memory. Of fixed size. */
struct page_table_tasks *page_table_tasks_new(void);
/* NULL is a no-op. */
void page_table_tasks_free(struct page_table_tasks *tasks);

/*
 * The process of the page tables in CR3, whose PCID and flags do not matter (SDM vol. 3A 4.5.2):
 * the same for the same in every recording, and above SAMPLE_TASK_LIMIT and those that stand for
 * vCPUs. *FIRST: it was not asked for before. 0: there is none, as CR3 is not known (0), is above 4
 * TiB, for which readers have no process id, or is one too many.
 */
uint32_t page_table_tasks_pid(struct page_table_tasks *tasks, uint64_t cr3, bool *first);

/* Its name: "cr3 1ff000". For a CR3 that has a process. */
void page_table_tasks_name(uint64_t cr3, char name[SAMPLE_COMM_SIZE]);

/* How often there was none though CR3 is known. */
uint64_t page_table_tasks_refused(const struct page_table_tasks *tasks);

#endif
