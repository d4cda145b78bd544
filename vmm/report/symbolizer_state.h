/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a resolver of a file has, for the files that it is made of:
 *
 *	symbolizer.c           opening and closing, and the samples
 *	symbolizer_sideband.c  what the file says of mappings, names, forks and cgroups
 *	symbolizer_frames.c    what an address is in them
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
#include "vmm/report/profile_input.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/report/profile_timeline.h"
#include "vmm/report/symbolizer.h"

/* As perf's default; longer chains lose their outermost frames. */
#define PROFILE_DEPTH_MAX 1024

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
	struct profile_kernel kernels[2]; /* this machine's, and its guest's */
	const char *unknown, *none;       /* "[unknown]" and "" in the pool */
	int chosen;                       /* the event that is taken; -1: all */
	uint64_t lost;
	int (*each)(void *context, const struct symbolized_sample *sample);
	void *each_context;
	struct symbolized_frame stack[PROFILE_DEPTH_MAX];
};

/* Says that there is no memory for the profile; -ENOMEM. */
int symbolizer_out_of_memory(const struct symbolizer *resolver);

/* The first pass over the file. -ENOMEM, -EINVAL where a file that the user gave is not right, the
 * errors of the reader. */
int symbolizer_read_sideband(struct symbolizer *resolver);
/* NULL: the file does not say. */
struct profile_cgroup *symbolizer_cgroup(const struct symbolizer *resolver, uint64_t id);

/* The frame for ENTRY's address in SPACE (NULL: nothing is known of it) as it is in ENTRY's epoch;
 * fills in the rest of ENTRY. -ENOMEM. */
int symbolizer_resolve(struct symbolizer *resolver, const struct profile_space *space, bool kernel,
		       struct profile_frame_cache_entry *entry);
/* What ran outside of the guest is none of its code: one frame for all of it. NULL without memory.
 */
const struct profile_frame *symbolizer_host_frame(struct symbolizer *resolver);

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
