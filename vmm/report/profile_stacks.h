/* SPDX-License-Identifier: Apache-2.0 */
/* The profile in memory: the samples of a perf.data file by symbolized stack. Report, folded
 * stacks, and the exports are made from it. */
#ifndef KVMSCOPE_REPORT_PROFILE_STACKS_H
#define KVMSCOPE_REPORT_PROFILE_STACKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/symbol_paths.h"

struct debuginfod;
struct guest_disk;
struct profile;

struct profile_frame {
	const char *symbol;   /* NULL: unsymbolized; show the address. Inlined: with " (inlined)" */
	const char *function; /* the same without that suffix */
	const char *image;    /* "[kernel.kallsyms]", "[virtio_blk]", a file's name, "[unknown]" */
	const char *build_id; /* of the image, hexadecimal digits; "": unknown */
	uint64_t address;     /* as sampled, of the first sample in this frame */
	bool kernel;          /* executed in the kernel, modules included */
	bool inlined;         /* inlined into the function of the next frame */
	const char *file;     /* source file and line; NULL and 0: unknown or not requested */
	unsigned int line;
};

/* The samples with one stack on one vCPU in one process. */
struct profile_stack {
	const struct profile_frame *const *frames; /* innermost first */
	size_t depth;                              /* at least 1 */
	const char *comm;                          /* "": unknown */
	const char *cgroup;                        /* path of its cgroup; "": unknown */
	const char *container;                     /* of that cgroup; "": none */
	const char *app; /* the program that the process runs; its comm if that is unknown */
	uint32_t pid;
	uint32_t tid;  /* 0 unless the options separate threads */
	uint32_t vcpu; /* UINT32_MAX: unknown */
	size_t event;  /* of the samples */
	uint64_t samples;
	uint64_t weight; /* sum of periods, see struct profile_event */
};

/* One sample, for exports that show time. */
struct profile_sample {
	uint64_t time, weight; /* ns of the recording's clock; its period */
	uint32_t vcpu;         /* of its stack */
	uint32_t stack;        /* its index */
};

/* The unit of a sum of periods. */
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
	bool frequency_changed; /* of a clock: some samples have another frequency */
	uint64_t samples, weight;
	/* The event's counter, if the recording has it; else enabled is 0. */
	struct perf_data_count count;
};

struct profile_options {
	const char *input;    /* perf.data */
	const char *kallsyms; /* file or NULL */
	const char *vmlinux;  /* ELF or NULL */
	struct symbol_sources sources;
	struct guest_disk *const *disks; /* the guest's, searched for files that are missing here */
	size_t disk_count;
	int32_t vcpu;                    /* only this one; -1: all */
	const struct time_ranges *times; /* only samples of these; NULL: all */
	const char *event; /* only this one: its name, or its number from 0; NULL: all */
	bool threads;      /* separate the threads of a process */
	bool inlined;      /* inlined functions are frames of their own */
	bool lines;        /* with INLINED: separate frames of one function by source line */
	const atomic_bool *cancel; /* loading ends once it is true, from any thread; NULL: never */
	uint64_t cpu_limit;        /* ns of CPU time that loading may take; 0: no limit */
	bool samples;              /* keep every sample, see profile_samples_by_vcpu() */
	bool leaves_only; /* only the sampled function of each stack, for a report without callers
			   */
};

/*
 * Reads and symbolizes the whole file. OPTIONS must live as long as the profile. Errors: those of
 * the reader and of reading OPTIONS->kallsyms and vmlinux; -ENXIO: no such event; -ECANCELED,
 * -ETIME: by the options' cancel and cpu_limit. Missing symbols are not an error, see
 * profile_note(). Strings of a profile are safe to show: they have no line ends, terminal controls
 * or bidirectional controls; equal strings are equal pointers. One thread at a time.
 */
int profile_load(struct profile **profile, const struct profile_options *options);
void profile_free(struct profile *profile); /* NULL is a no-op */

size_t profile_stack_count(const struct profile *profile);
const struct profile_stack *profile_stack(const struct profile *profile, size_t index);
/* Samples of all selected events. */
uint64_t profile_samples(const struct profile *profile);
/* All of them, by vCPU and then by time; NULL unless the options keep them. */
const struct profile_sample *profile_samples_by_vcpu(const struct profile *profile);
/* All events of the file, by number; events that are not selected have no samples. */
size_t profile_event_count(const struct profile *profile);
const struct profile_event *profile_event(const struct profile *profile, size_t number);
/* The event that the options select; 0 if they select all. */
size_t profile_event_chosen(const struct profile *profile);
/* ns from the first to the last sample of all selected events. */
uint64_t profile_duration(const struct profile *profile);
uint64_t profile_lost(const struct profile *profile);
const struct perf_data_summary *profile_summary(const struct profile *profile);
/* The times that the options select, as the user gave them; "": all. */
const char *profile_times(const struct profile *profile);
/* One line on why the kernel's functions have no symbols, "" if they have. */
const char *profile_note(const struct profile *profile);
/* The number of images with symbolized samples, and of those without DWARF; 0 without the option.
 */
void profile_inlines(const struct profile *profile, size_t *images, size_t *unknown);
/* "ns", "hits" or "events", for formats that programs read. */
const char *profile_unit_name(enum profile_unit unit);
/* The image of the frame for everything outside the guest: KVM, the VMM. */
#define PROFILE_HOST_IMAGE "[hypervisor]"

/* True if FRAME is in a kernel module. */
bool profile_frame_is_module(const struct profile_frame *frame);

#endif
