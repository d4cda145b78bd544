/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goes through a perf.data file and gives every sample with its addresses
 * turned into frames. Two passes: first the sideband (mappings, names,
 * forks), which may stand behind samples that it is about, then the samples.
 * One thread at a time.
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
	const struct profile_frame
		*frame; /* one object for each symbol; lives as long as the resolver */
	uint64_t own;   /* the address as the image's symbol table has it */
};

/* From the start of the symbol; 0 without one, and of a function that is inlined. */
uint64_t symbolized_frame_offset(const struct symbolized_frame *frame);
/* As perf script shows it: offsets in their files for user space, sampled addresses for the kernel.
 */
uint64_t symbolized_frame_address(const struct symbolized_frame *frame);
/* The image by its whole path, "[unknown]" where there is none. */
const char *symbolized_frame_path(const struct symbolized_frame *frame);

struct symbolized_sample {
	const struct perf_data_sample *recorded;
	const struct symbolized_frame *frames; /* innermost first */
	size_t depth;                          /* at least 1 */
	const char *comm;      /* "" where none is known; equal names are equal pointers */
	const char *app;       /* the program's name, else comm; equal names are equal pointers */
	const char *cgroup;    /* its path; "" where none is known; equal ones are equal pointers */
	const char *container; /* that it says; likewise */
	uint32_t tid;          /* 0 unless the options tell threads apart */
	uint32_t vcpu;         /* UINT32_MAX where it was not recorded */
};

/* Reads the sideband. OPTIONS, but not what it points to, is copied. The errors of the reader. */
int symbolizer_open(struct symbolizer **resolver, const struct profile_options *options);
/* NULL is a no-op. */
void symbolizer_close(struct symbolizer *resolver);

/* Each sample that OPTIONS do not leave out, in file order. A result of EACH below 0 ends the
 * reading with it. */
int symbolizer_run(struct symbolizer *resolver,
		   int (*each)(void *context, const struct symbolized_sample *sample),
		   void *context);

/* The events of the file by number, NULL behind the last; a program's bytes. Complete after
 * opening. */
const struct perf_data_event *symbolizer_event(const struct symbolizer *resolver, size_t number);
/* What one counted, on the vCPU of the options. False: the file does not say. */
bool symbolizer_count(const struct symbolizer *resolver, size_t number,
		      struct perf_data_count *count);
/* The event that the options take, -1: all. */
int symbolizer_chosen(const struct symbolizer *resolver);

/* Complete after the run. */
const struct perf_data_summary *symbolizer_summary(const struct symbolizer *resolver);
uint64_t symbolizer_lost(const struct symbolizer *resolver);
/* Why the kernel's functions have no names; "" if they have, or were not sampled. */
const char *symbolizer_note(const struct symbolizer *resolver);
/* How many images were asked for what is inlined in them, and of how many nothing says. */
void symbolizer_inlines(const struct symbolizer *resolver, size_t *asked, size_t *unknown);

#endif
