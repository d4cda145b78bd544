/* SPDX-License-Identifier: Apache-2.0 */
/* Cache of symbolized addresses: the one lookup that is needed for every frame of every sample. One
 * thread. */
#ifndef KVMSCOPE_REPORT_PROFILE_FRAME_CACHE_H
#define KVMSCOPE_REPORT_PROFILE_FRAME_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/report/profile_stacks.h"

struct profile_frame_cache_entry {
	uint64_t address;
	uint32_t space, epoch;
	bool caller; /* a return address */
	uint8_t inlined_count;
	const struct profile_frame *frame; /* NULL: a new entry, which the caller fills in */
	const struct profile_frame *const *inlined; /* inlined into FRAME there, innermost first */
	uint64_t own;                               /* the address in the image's symbol table */
};

struct profile_frame_cache {
	struct profile_frame_cache_entry *entries;
	size_t count, capacity; /* a power of two */
};

/* 0 or -ENOMEM. */
int profile_frame_cache_open(struct profile_frame_cache *cache);
/* Frees what it holds; zeroed, it holds nothing. */
void profile_frame_cache_close(struct profile_frame_cache *cache);

/* The entry of an address, valid until the next call. NULL without memory. */
struct profile_frame_cache_entry *profile_frame_cache_entry(struct profile_frame_cache *cache,
							    uint64_t address, uint32_t space,
							    uint32_t epoch, bool caller);

#endif
