/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the symbolizer, one object in four files:
 *
 *	symbolizer.c		opens and closes it; samples
 *	symbolizer_sideband.c	mappings, comms, forks and cgroups of the file
 *	symbolizer_frames.c	turns an address into a frame
 *	profile_input.c		copies a pipe, so that it can be read twice
 */
#ifndef KVMSCOPE_REPORT_SYMBOLIZER_STATE_H
#define KVMSCOPE_REPORT_SYMBOLIZER_STATE_H

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>

#include "shared/pool.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/report/profile_frame_cache.h"
#include "vmm/report/profile_image.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/report/profile_timeline.h"
#include "vmm/report/symbolizer.h"
#include "vmm/report/time_ranges.h"

/* perf's default; longer call chains lose their outermost frames. */
#define PROFILE_DEPTH_MAX 1024

struct profile_input {
	char path[32]; /* of the copy */
	int fd;        /* of the copy; -1: none needed */
};

struct profile_cgroup {
	uint64_t id;
	const char *path, *container;
};

struct symbolizer {
	struct profile_options options;
	struct profile_input input;
	struct perf_data_reader *reader;
	struct pool pool;
	struct profile_timeline *timeline;
	struct hash_table images;    /* struct profile_image by path, build id and machine */
	struct hash_table build_ids; /* struct build_id by name */
	struct hash_table cgroups;   /* struct profile_cgroup by id */
	struct hash_table frames;    /* struct frame by image and symbol or address */
	struct profile_frame_cache cache;
	/* The recorded machine's, and its guest's; in the guest's perspective, the host's. */
	struct profile_kernel kernels[2];
	bool has_host; /* the file is of the guest's perspective, and has the host's mappings */
	const char *unknown, *none;     /* "[unknown]" and "" in the pool */
	int chosen;                     /* the selected event; -1: all */
	uint64_t started;               /* CPU time of the thread, ns */
	uint64_t checks;                /* of the limits */
	uint64_t lost, samples;         /* samples: read so far, selected or not */
	struct time_ranges times;       /* the selected ones; none: all */
	uint64_t first_time, last_time; /* of all samples, if TIMES are percentages */
	int (*each)(void *context, const struct symbolized_sample *sample);
	void *each_context;
	struct symbolized_frame stack[PROFILE_DEPTH_MAX];
};

/*
 * If PATH ("-" is standard input) is a pipe, copies it to its end into an unnamed file in $TMPDIR,
 * else /var/tmp. Returns the path to read, PATH or the copy's; NULL, with an error message, if the
 * copy failed.
 */
const char *profile_input_open(struct profile_input *input, const char *path);
void profile_input_close(struct profile_input *input);

/* Sets the error message of a failed allocation; returns -ENOMEM. */
int symbolizer_out_of_memory(const struct symbolizer *symbolizer);

/* -ECANCELED or -ETIME, with a message, by the limits of the options; most calls do not check.
 * CONTEXT is the symbolizer. */
int symbolizer_check(void *context);

/* The first pass over the file. -ENOMEM; -EINVAL: a file given by the user is wrong; the errors of
 * the reader. */
int symbolizer_read_sideband(struct symbolizer *symbolizer);
/* NULL: unknown. */
struct profile_cgroup *symbolizer_cgroup(const struct symbolizer *symbolizer, uint64_t id);

/* Fills in ENTRY for its address in SPACE (NULL: unknown) at ENTRY's epoch. -ENOMEM. */
int symbolizer_resolve(struct symbolizer *symbolizer, const struct profile_space *space,
		       bool kernel, struct profile_frame_cache_entry *entry);
/* The one frame for everything that ran outside the guest. NULL without memory. */
const struct profile_frame *symbolizer_host_frame(struct symbolizer *symbolizer);
/* The frame for REASON to be outside, any bytes. NULL without memory. */
const struct profile_frame *symbolizer_reason_frame(struct symbolizer *symbolizer,
						    const char *reason);

static inline uint64_t hash_pointer(const void *pointer)
{
	return hash_mix(0, (uintptr_t)pointer);
}

static inline bool is_guest_mode(uint16_t mode)
{
	return mode == PERF_RECORD_MISC_GUEST_KERNEL || mode == PERF_RECORD_MISC_GUEST_USER;
}

static inline bool is_kernel_mode(uint16_t mode)
{
	return mode == PERF_RECORD_MISC_KERNEL || mode == PERF_RECORD_MISC_GUEST_KERNEL;
}

#endif
