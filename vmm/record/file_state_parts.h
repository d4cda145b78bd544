/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of struct file_state: file_state_tasks.c, file_state_mappings.c and file_state_jit.c.
 * For file_state.c and tests only. Collector thread.
 */
#ifndef KVMSCOPE_RECORD_FILE_STATE_PARTS_H
#define KVMSCOPE_RECORD_FILE_STATE_PARTS_H

#include "vmm/record/file_state.h"

/* Appends to the file. Errors end the call that they come from, as its own. */
struct file_emit {
	int (*record)(void *context, const struct sideband *record);
	void *context;
};

/* --- processes, threads and cgroups: of fixed size, whatever the guest makes up --- */

struct file_tasks;

struct file_tasks *file_tasks_new(void); /* NULL without memory */
void file_tasks_free(struct file_tasks *tasks);

/* Has the file yet to say that TID, below SAMPLE_TASK_LIMIT, belongs to the process that began at
 * STARTED (not 0)? Counts as said afterwards. */
bool file_tasks_start_due(struct file_tasks *tasks, uint32_t tid, uint64_t started);

/*
 * Is NAME, of at most SAMPLE_COMM_SIZE - 1 bytes, to be written for thread TID of process PID at
 * TIME (ns)? Yes if it is not the name that was written last, or for times before that one: readers
 * go by time. Counts as written afterwards. Threads that share a slot are written more often.
 */
bool file_tasks_name_due(struct file_tasks *tasks, uint32_t pid, uint32_t tid, uint64_t time,
			 const char *name);
/* The file says that TID was forked at TIME: readers give it its parent's name, so its own is due
 * next. */
void file_tasks_fork(struct file_tasks *tasks, uint32_t pid, uint32_t tid, uint64_t time);

/* Is the path of cgroup ID (not 0) to be written? Counts as written afterwards. */
bool file_tasks_cgroup_due(struct file_tasks *tasks, uint64_t id);

/* Readers keep something of each process, and a guest may have any number of page tables. */
#define FILE_ROOTS_MAX 1024u
/*
 * The process that stands for the page tables in CR3, whatever its PCID and flags (SDM vol. 3A
 * 4.5.2): the same id in every recording, above SAMPLE_TASK_LIMIT and the ids of vCPUs. *FIRST:
 * this is the first call for it. 0: none; CR3 is 0 or above 4 TiB, or there are FILE_ROOTS_MAX
 * already.
 */
uint32_t file_tasks_root_pid(struct file_tasks *tasks, uint64_t cr3, bool *first);
/* "cr3 1ff000", for a CR3 that has a process. */
void file_tasks_root_name(uint64_t cr3, char name[SAMPLE_COMM_SIZE]);
uint64_t file_tasks_refused_roots(const struct file_tasks *tasks);

/* --- mappings --------------------------------------------------------------------- */

struct file_mappings;

/* Memory of fixed size; only what forks copy is charged to ACCOUNT. NULL without memory. */
struct file_mappings *file_mappings_new(struct guest_account *account,
					const struct image_catalog *images,
					const struct file_emit *emit);
void file_mappings_free(struct file_mappings *mappings); /* NULL is a no-op */

/* Makes the file agree with the decisions for a sample. REPORTS: sources write mappings into the
 * file, too. *LATE: see struct file_state_entry. */
int file_mappings_sample(struct file_mappings *mappings, const struct attributed_sample *attributed,
			 bool reports, bool *late);

/*
 * Before a source's RECORD is written, whose time is not exact: emits what must precede it, and
 * moves its time after the samples that it must not affect. An execve keeps its time relative to
 * the mappings that follow it.
 */
int file_mappings_move(struct file_mappings *mappings, struct sideband *record);
/* RECORD, which is of time REPORTED, was written for a later time: restates what samples said since
 * REPORTED of the addresses that it covers. */
int file_mappings_restate(struct file_mappings *mappings, const struct sideband_mmap *record,
			  uint64_t reported);

/* A source's FORK or EXIT was written. In any order, but before the samples of later times. */
void file_mappings_reported(struct file_mappings *mappings, const struct sideband *record);
/* The file says that PID begins anew, with nothing mapped. */
void file_mappings_begin(struct file_mappings *mappings, uint32_t pid);

/* --- run-time code ---------------------------------------------------------------- */

struct file_jit;

/* Ranges that ACCOUNT has no memory for are left out of the file. NULL without memory. */
struct file_jit *file_jit_new(struct guest_account *account, const struct file_emit *emit);
void file_jit_free(struct file_jit *jit); /* NULL is a no-op */

/* Makes the file agree with what CODE knows of the sample's addresses in anonymous memory. After
 * file_mappings_sample(). */
int file_jit_sample(struct file_jit *jit, struct jit_code *code,
		    const struct attributed_sample *attributed);
/* Somebody else's RECORD was written. What cannot be remembered of it is emitted as anonymous. */
int file_jit_written(struct file_jit *jit, const struct sideband *record);

#endif
