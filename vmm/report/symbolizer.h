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

struct profile_resolver;

/* One address of one sample. */
struct resolved_frame {
	const struct profile_frame
		*frame; /* one object for each symbol; lives as long as the resolver */
	uint64_t own;   /* the address as the image's symbol table has it */
};

/* From the start of the symbol; 0 without one, and of a function that is inlined. */
uint64_t resolved_frame_offset(const struct resolved_frame *frame);
/* As perf script shows it: offsets in their files for user space, sampled addresses for the kernel.
 */
uint64_t resolved_frame_address(const struct resolved_frame *frame);
/* The image by its whole path, "[unknown]" where there is none. */
const char *resolved_frame_path(const struct resolved_frame *frame);

struct resolved_sample {
	const struct perf_data_sample *recorded;
	const struct resolved_frame *frames; /* innermost first */
	size_t depth;                        /* at least 1 */
	const char *comm;      /* "" where none is known; equal names are equal pointers */
	const char *app;       /* the program's name, else comm; equal names are equal pointers */
	const char *cgroup;    /* its path; "" where none is known; equal ones are equal pointers */
	const char *container; /* that it says; likewise */
	uint32_t tid;          /* 0 unless the options tell threads apart */
	uint32_t vcpu;         /* UINT32_MAX where it was not recorded */
};

/* Reads the sideband. OPTIONS, but not what it points to, is copied. The errors of the reader. */
int profile_resolver_open(struct profile_resolver **resolver,
			  const struct profile_options *options);
/* NULL is a no-op. */
void profile_resolver_close(struct profile_resolver *resolver);

/* Each sample that OPTIONS do not leave out, in file order. A result of EACH below 0 ends the
 * reading with it. */
int profile_resolver_run(struct profile_resolver *resolver,
			 int (*each)(void *context, const struct resolved_sample *sample),
			 void *context);

/* The events of the file by number, NULL behind the last; a program's bytes. Complete after
 * opening. */
const struct perf_data_event *profile_resolver_event(const struct profile_resolver *resolver,
						     size_t number);
/* What one counted, on the vCPU of the options. False: the file does not say. */
bool profile_resolver_count(const struct profile_resolver *resolver, size_t number,
			    struct perf_data_count *count);
/* The event that the options take, -1: all. */
int profile_resolver_chosen(const struct profile_resolver *resolver);

/* Complete after the run. */
const struct perf_data_summary *profile_resolver_summary(const struct profile_resolver *resolver);
uint64_t profile_resolver_lost(const struct profile_resolver *resolver);
/* Why the kernel's functions have no names; "" if they have, or were not sampled. */
const char *profile_resolver_note(const struct profile_resolver *resolver);
/* How many images were asked for what is inlined in them, and of how many nothing says. */
void profile_resolver_inlines(const struct profile_resolver *resolver, size_t *asked,
			      size_t *unknown);

#endif
