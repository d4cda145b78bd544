/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a perf.data file and turns the addresses of each sample into frames. Two passes: sideband
 * events (mappings, comms, forks) first, because they may come after samples that they apply to,
 * then the samples. One thread at a time.
 */
#ifndef KVMSCOPE_REPORT_SYMBOLIZER_H
#define KVMSCOPE_REPORT_SYMBOLIZER_H

#include <stddef.h>
#include <stdint.h>

#include "shared/pool.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/report/profile_stacks.h"

struct symbolizer;

/* One address of one sample. */
struct symbolized_frame {
	const struct profile_frame *frame; /* unique per symbol; lives as long as the symbolizer */
	uint64_t own;                      /* the address in the image's symbol table */
};

/* Offset from the start of the symbol; 0 without one, and for inlined functions. */
uint64_t symbolized_frame_offset(const struct symbolized_frame *frame);
/* As perf script shows it: file offset in user space, sampled address in the kernel. */
uint64_t symbolized_frame_address(const struct symbolized_frame *frame);
/* The whole path of the image, "[unknown]" without one. */
const char *symbolized_frame_path(const struct symbolized_frame *frame);

/* Equal strings are equal pointers. */
struct symbolized_sample {
	const struct perf_data_sample *recorded;
	const struct symbolized_frame *frames; /* innermost first */
	size_t depth;                          /* at least 1 */
	const char *comm;                      /* "": unknown */
	const char *app;                       /* the program's name, else comm */
	const char *cgroup;                    /* its path; "": unknown */
	const char *container;                 /* of the cgroup; "": none */
	uint32_t tid;                          /* 0 unless the options separate threads */
	uint32_t vcpu;                         /* UINT32_MAX: unknown */
};

/* Reads the sideband. OPTIONS, but not what it points to, is copied. The errors of the reader. */
int symbolizer_open(struct symbolizer **symbolizer, const struct profile_options *options);
void symbolizer_close(struct symbolizer *symbolizer); /* NULL is a no-op */

/*
 * Calls EACH for every sample that OPTIONS select, in file order; with NULL, only loads the symbols
 * that the samples need. A negative result of EACH ends the reading and is returned. Warns about a
 * file that is cut off; -ENODATA if that has no sample.
 */
int symbolizer_run(struct symbolizer *symbolizer,
		   int (*each)(void *context, const struct symbolized_sample *sample),
		   void *context);

/* The events of the file by number, NULL after the last; names are any bytes. Complete after
 * opening. */
const struct perf_data_event *symbolizer_event(const struct symbolizer *symbolizer, size_t number);
/* The count of an event on the selected vCPU. False: not in the file. */
bool symbolizer_count(const struct symbolizer *symbolizer, size_t number,
		      struct perf_data_count *count);
/* The event that the options select; -1: all. */
int symbolizer_chosen(const struct symbolizer *symbolizer);

/* These are complete after the run. */
const struct perf_data_summary *symbolizer_summary(const struct symbolizer *symbolizer);
uint64_t symbolizer_lost(const struct symbolizer *symbolizer);
/* Why the kernel's functions have no symbols; "" if they have, or were not sampled. */
const char *symbolizer_note(const struct symbolizer *symbolizer);
/* The number of images whose inlined functions were looked up, and of those without DWARF. */
void symbolizer_inlines(const struct symbolizer *symbolizer, size_t *images, size_t *unknown);

#endif
