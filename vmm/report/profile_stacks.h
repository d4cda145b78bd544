/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile in memory: samples by their symbolized stacks, as report, folded
 * and flame graph want it. Built from a perf.data file with names found the
 * way perf finds them (build-id cache, --kallsyms, --vmlinux).
 */
#ifndef KVMSCOPE_REPORT_PROFILE_STACKS_H
#define KVMSCOPE_REPORT_PROFILE_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/symbol_paths.h"

struct debuginfod;
struct guest_disk;
struct profile;

struct profile_frame {
	const char *symbol;   /* NULL: not known; show the address. Of an inlined one with "
				 (inlined)" behind it */
	const char *function; /* the same without that */
	const char *image;    /* "[kernel.kallsyms]", "[virtio_blk]", a file's name, "[unknown]" */
	uint64_t address;     /* as sampled, of the first sample merged into it */
	bool kernel;          /* executed in the kernel, modules included */
	bool inlined;         /* the compiler put it into the function of the next frame */
	const char
		*file; /* where in the source, NULL and 0 where that is not known, or not wanted: */
	unsigned int line; /* see struct profile_options */
};

/* A set of samples with one and the same stack on one vCPU in one process. */
struct profile_stack {
	const struct profile_frame *const *frames; /* innermost first */
	size_t depth;                              /* at least 1 */
	const char *comm;                          /* "" where none is known */
	const char *cgroup;    /* the path of its cgroup; "" where none is known */
	const char *container; /* that this says; "" where it says none */
	const char *app; /* the program that the process runs; its comm where that is not known */
	uint32_t pid;
	uint32_t tid;  /* 0 unless the options tell threads apart */
	uint32_t vcpu; /* UINT32_MAX where it was not recorded */
	size_t event;  /* that the samples are of */
	uint64_t samples;
	uint64_t weight; /* sum of periods: see struct profile_event */
};

/* What a sum of periods stands for. */
enum profile_unit {
	PROFILE_NANOSECONDS, /* of a clock */
	PROFILE_HITS,        /* of a breakpoint or a watched variable */
	PROFILE_EVENTS,
};

/* An event of the recording. */
struct profile_event {
	const char *name;
	enum profile_unit unit;
	uint64_t frequency;     /* Hz; 0: it has a period */
	bool frequency_changed; /* a clock's: there are samples of others, too */
	uint64_t samples, weight;
	/* What it counted besides, of a recording that says so (enabled is 0 else): see struct
	 * perf_data_count. */
	struct perf_data_count count;
};

struct profile_options {
	const char *input;    /* perf.data */
	const char *kallsyms; /* file or NULL */
	const char *vmlinux;  /* ELF or NULL */
	struct symbol_sources sources;
	struct guest_disk *const *disks; /* the guest's, looked into for files that are not here */
	size_t disk_count;
	int32_t vcpu;      /* only this one; -1 all */
	const char *event; /* only this one: its name, or its number from 0; NULL: all */
	bool threads;      /* tell the threads of a process apart */
	bool inlined;      /* functions that the compiler put into others are frames of their own */
	bool lines;        /* and frames of one function are told apart by lines of the source; with
			      INLINED */
	bool leaves_only; /* stacks of the sampled function alone: all that a report without callers
			     needs */
};

/*
 * Reads and symbolizes the whole file. OPTIONS must live as long as the
 * profile. Errors: those of the reader, -ENOENT for an event that is not there, and of reading
 * OPTIONS->kallsyms and vmlinux; missing names are no error, see profile_note(). Names in a profile
 * are safe to show: nothing in them ends a line, moves a terminal's cursor or reorders text, and
 * equal names are equal pointers. Any one thread at a time.
 */
int profile_load(struct profile **profile, const struct profile_options *options);
/* NULL is a no-op. */
void profile_free(struct profile *profile);

size_t profile_stack_count(const struct profile *profile);
const struct profile_stack *profile_stack(const struct profile *profile, size_t index);
/* Of all events that the options take. */
uint64_t profile_samples(const struct profile *profile);
/* All events of the file, by number; those that the options leave out have no samples. */
size_t profile_event_count(const struct profile *profile);
const struct profile_event *profile_event(const struct profile *profile, size_t number);
/* The event of the options; 0 where they take all. */
size_t profile_event_chosen(const struct profile *profile);
uint64_t profile_lost(const struct profile *profile);
const struct perf_data_summary *profile_summary(const struct profile *profile);
/* One line on why the kernel's functions have no names, "" if they have. */
const char *profile_note(const struct profile *profile);
/* How many images with samples in named functions there are, and of how many nothing says what is
 * inlined; 0 and 0 without that option. */
void profile_inlines(const struct profile *profile, size_t *images, size_t *unknown);
/* What the unit is called where a program reads it: "ns", "hits", "events". */
const char *profile_unit_name(enum profile_unit unit);
/* The image of a frame that stands for what ran outside of the guest: KVM, the VMM. */
#define PROFILE_HOST_IMAGE "[hypervisor]"

/* Is FRAME in a kernel module? */
bool profile_frame_is_module(const struct profile_frame *frame);

#endif
