/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One perf.data file of a collector: the writer, and the state of what it has written. Also checks
 * the records of rings. Collector thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_OUTPUT_H
#define KVMSCOPE_RECORD_COLLECTOR_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

#include "shared/loss_counts.h"
#include "shared/ring.h"
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/record/file_state.h"
#include "vmm/resolve/resolver.h"

struct collector_kernel;
struct collector_options;
struct guest_kernel;

struct collector_output {
	struct perf_data_writer *writer;
	struct file_state *state; /* owned */
};

struct collector_output_options {
	struct guest_account *account;      /* as in file_state_options, */
	const struct image_catalog *images; /* these, too; */
	/* The guest is not Linux. Not in the host's perspective, which has no guest processes. */
	bool page_tables;
	bool sources; /* as in file_state_options */
	void (*mapped)(void *context, const struct sideband_mmap *mapping);
	void *context;
};

/* Those of the files of KERNEL's guest. */
struct collector_output_options collector_output_options(const struct collector_kernel *kernel);

/* Opens the file. OPTIONS NULL: all zero. The errors of perf_data_writer_open(), and -ENOMEM. */
int collector_output_open(struct collector_output *output, const struct perf_data_options *file,
			  const struct collector_output_options *options);

/* Writes a sample of a vCPU that the options have. KERNEL has the cgroups that samples refer to,
 * JIT the code that the guest generated; NULL: not known. Errors of writing. */
int collector_output_sample(struct collector_output *output,
			    const struct attributed_sample *attributed,
			    const struct guest_kernel *kernel, struct jit_code *jit);
/* Writes what the watches of OPTIONS have counted up to TIME. Errors of writing. */
int collector_output_counts(struct collector_output *output,
			    const struct collector_options *options, uint64_t time);
/* Adds the losses of the file itself to LOSSES. */
void collector_output_losses(const struct collector_output *output, struct losses *losses);

/* Completes the file and frees what OUTPUT holds, also after an error; returns the first one. */
int collector_output_close(struct collector_output *output);

/* The sample in RECORD; NULL if it has none, or one that no vCPU below VCPUS and no event up to
 * WATCHES can have written. */
const struct sample *collector_sample(const struct ring_record *record, size_t vcpus,
				      size_t watches);
/* The same for the state of an event. */
const struct sample_event *collector_event(const struct ring_record *record, size_t vcpus,
					   size_t watches);
/* The same for losses of the guest's own breakpoints. */
const struct sample_guest_breakpoint_lost *collector_guest_lost(const struct ring_record *record,
								size_t vcpus);

#endif
