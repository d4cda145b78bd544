/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One perf.data file of a collector: samples go in as they come out of the
 * rings, and what has to stand before them is written when it is first needed.
 * The collector's thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_OUTPUT_H
#define KVMSCOPE_RECORD_COLLECTOR_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

#include "shared/loss_counts.h"
#include "shared/ring.h"
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/record/cgroup_names.h"
#include "vmm/record/jit_spaces.h"
#include "vmm/record/page_table_tasks.h"
#include "vmm/record/process_cgroups.h"
#include "vmm/record/task_lives.h"
#include "vmm/record/task_names.h"
#include "vmm/record/user_spaces.h"
#include "vmm/resolve/resolver.h"

struct collector_options;

struct collector_output {
	struct perf_data_writer *writer;
	struct task_lives *lives;     /* that are in the file; owned */
	struct task_names *names;     /* that are in the file; owned */
	struct user_spaces *spaces;   /* the same; owned */
	struct cgroup_names *cgroups; /* the same; owned */
	struct jit_spaces *jit;       /* the same; owned */
	struct jit_code
		*jit_code; /* what they are of, the owner's to set; NULL: nothing is known */
	struct process_cgroups *told_cgroups; /* by the guest itself; owned */
	/* The guest is no Linux: its processes are these. Made by
	 * collector_output_name_page_tables(); owned; NULL: it may be one. */
	struct page_table_tasks *page_tables;
	bool told_by_guest; /* what is mapped is told by the guest itself */
	/*
	 * Then: a file that a sample told to be mapped, and the guest did not. Set by the owner
	 * behind collector_output_open(); may be NULL.
	 */
	void (*filled)(void *context, const struct sideband_mmap *mapping);
	void *context; /* of filled() */
};

/* Opens the file. What it keeps of what the guest tells is of ACCOUNT. The errors of
 * perf_data_writer_open(), and -ENOMEM. */
int collector_output_open(struct collector_output *output, const struct perf_data_options *options,
			  struct guest_account *account);

/*
 * The guest is no Linux: samples that know CR3 are of a process of its page tables, which has what
 * is mapped for those whose task is not known; not so in the host's perspective, which has no
 * process of the guest. Before the first sample. -ENOMEM.
 */
int collector_output_name_page_tables(struct collector_output *output);

/*
 * Each adds to the file; the errors of writing. The vCPU is one that the options have. KERNEL has
 * the images and cgroups that samples name; NULL: they are not known.
 */
int collector_output_sample(struct collector_output *output,
			    const struct attributed_sample *attributed,
			    const struct guest_kernel *kernel);
int collector_output_sideband(struct collector_output *output, const struct sideband *record,
			      const struct guest_kernel *kernel);
int collector_output_event(struct collector_output *output, const struct sample_event *event);
/* What OPTIONS' watches have counted up to TIME, if they are asked. */
int collector_output_counts(struct collector_output *output,
			    const struct collector_options *options, uint64_t time);
/* Adds what the file itself could not tell to what LOSSES has. */
void collector_output_losses(const struct collector_output *output, struct losses *losses);
/* COUNT samples of VCPU were lost before TIME. */
int collector_output_lost(struct collector_output *output, uint64_t time, uint32_t vcpu,
			  uint64_t count);

/* Completes the file and frees what OUTPUT holds, also after an error; returns the first one. */
int collector_output_close(struct collector_output *output);

/*
 * Does SAMPLE tell what was mapped at ADDRESS, as far as the images of KERNEL (NULL: it is not
 * known) know by now? Then collector_output_sample() has the file say so.
 */
bool collector_output_tells(const struct guest_kernel *kernel, const struct sample *sample,
			    uint64_t address);

/*
 * The sample in RECORD; NULL if it holds none, or one that no writer of ours
 * makes for VCPUS vCPUs and WATCHES watches.
 */
const struct sample *collector_sample(const struct ring_record *record, size_t vcpus,
				      size_t watches);
/* The same for what tells of an event. */
const struct sample_event *collector_event(const struct ring_record *record, size_t vcpus,
					   size_t watches);
/* The same for what tells of the guest's own breakpoints. */
const struct sample_guest_breakpoint_lost *collector_guest_lost(const struct ring_record *record,
								size_t vcpus);

#endif
