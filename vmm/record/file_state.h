/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the perf.data file that is being written already says of the guest: its processes, threads,
 * mappings, run-time code and cgroups. Readers take each statement to hold until the file says
 * something else. So before a sample is written, the file state compares the resolver's decision
 * with the file, and emits the records that are missing.
 *
 *	resolver --decision--> file state --COMM, FORK, MMAP2, CGROUP--> writer
 *
 * One object for one file: a new file begins with a new object. Collector thread.
 */
#ifndef KVMSCOPE_RECORD_FILE_STATE_H
#define KVMSCOPE_RECORD_FILE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sideband_record.h"
#include "vmm/guest/guest_account.h"
#include "vmm/guest/linux/guest_cgroup.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/record/jit_code.h"
#include "vmm/resolve/resolver.h"

struct file_state;

struct file_state_options {
	struct guest_account *account;      /* charged for what the guest can fill without bound */
	const struct image_catalog *images; /* of mappings that samples carry; NULL: none */
	/* The guest is not Linux: each page table root in CR3 stands for a process. */
	bool page_tables;
	/*
	 * Sources may report mappings into the file. What they report may be of an earlier time, so
	 * from the first sample on an address that nothing is known of is written as unmapped.
	 */
	bool sources;
	uint32_t unknown_pid; /* process of samples whose task is not known */
	/* Append to the file. A negative errno is returned by the call that emits the record.
	 */
	int (*record)(void *context, const struct sideband *record);
	int (*comm)(void *context, uint64_t time, const struct perf_data_task *task,
		    const char *comm);
	int (*cgroup)(void *context, uint64_t time, uint64_t id, const char *path);
	/* Samples carried a mapping that no source had reported; NULL. Only while sources report
	 * mappings. */
	void (*mapped)(void *mapped_context, const struct sideband_mmap *mapping);
	void *context, *mapped_context;
};

/* NULL without memory. OPTIONS are copied; what they point to outlives the object. */
struct file_state *file_state_new(const struct file_state_options *options);
void file_state_free(struct file_state *state); /* NULL is a no-op */

/* What is known of the guest beside the sample; NULL: nothing. */
struct file_state_guest {
	const struct guest_cgroups *cgroups; /* the table that samples refer to */
	struct jit_code *jit;
};

/* How a sample is to be written. */
struct file_state_entry {
	struct perf_data_task task; /* in: as the writer has it; out: as the file has it */
	uint64_t cgroup;            /* 0: not known */
	/* It comes too late: its user addresses would be read by what the file says of later
	 * times, and must not be looked up. */
	bool late;
};

/* Emits what the file lacks before the sample, and fills in ENTRY. Errors of the options'
 * functions, or -ENOMEM. */
int file_state_sample(struct file_state *state, const struct attributed_sample *attributed,
		      const struct file_state_guest *guest, struct file_state_entry *entry);

/* Emits what RECORD, an event of any type, changes in the file. Errors as above. */
int file_state_sideband(struct file_state *state, const struct sideband *record);

/* Has a source reported mappings into this file? */
bool file_state_has_reports(const struct file_state *state);

/* Samples whose CR3 is known, but has no process in the file. */
uint64_t file_state_unnamed_roots(const struct file_state *state);

#endif
