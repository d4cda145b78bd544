/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for the frames of a profile, for formats in which stacks refer to a list of frames. */
#ifndef KVMSCOPE_REPORT_NUMBERED_FRAMES_H
#define KVMSCOPE_REPORT_NUMBERED_FRAMES_H

#include "shared/pool.h"
#include "vmm/report/profile_stacks.h"

/* Functions of one name in two images, or in two builds of one, are two frames. */
struct numbered_frame {
	const char *name;
	const struct profile_frame *frame; /* NULL: a program or a thread */
	uint32_t number;
};

struct numbered_stack {
	uint32_t depth;
	uint32_t frames[]; /* outermost first: the program, its thread if that has another name */
};

struct numbered_frames {
	struct pool pool;
	struct hash_table table;
	const struct numbered_frame **list; /* by number */
	size_t count, capacity;
	const struct numbered_stack **stacks; /* by the profile's index */
};

/* 0 or -ENOMEM with a message; FRAMES must be freed in both cases. */
int numbered_frames_make(struct numbered_frames *frames, const struct profile *profile);
/* Frees what it holds; zeroed, it holds nothing. */
void numbered_frames_free(struct numbered_frames *frames);

/* The number of samples from FIRST on that are of the same vCPU; 0 after the last. */
size_t samples_of_vcpu(const struct profile *profile, size_t first);
/* "vCPU 0" or "unknown vCPU". */
void vcpu_name(uint32_t vcpu, char *text, size_t size);

#endif
