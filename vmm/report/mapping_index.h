/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mappings of one address space over time: the latest one at an address, up to any of them. A
 * guest can create any number, over each other, so both building and lookups take little time for
 * each: a segment tree. One thread at a time.
 */
#ifndef KVMSCOPE_REPORT_MAPPING_INDEX_H
#define KVMSCOPE_REPORT_MAPPING_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/report/profile_timeline.h"

/* Zeroed: none. */
struct mapping_index {
	uint64_t *bounds; /* owned; starts and ends of mappings, ascending, each once */
	size_t ranges;    /* between two bounds: the leaves of the tree */
	/* Owned; node N has the entries FIRST[N] up to FIRST[N + 1]: mappings that cover all of the
	 * node and not all of its parent, the earliest first. */
	uint32_t *first, *entries;
};

/* Indexes the COUNT mappings, ascending by time. 0 or -ENOMEM. */
int mapping_index_build(struct mapping_index *index, struct profile_mapping *const *mappings,
			size_t count);
/* Frees what it holds; zeroed, it holds nothing. */
void mapping_index_free(struct mapping_index *index);

/* The number plus 1 of the latest mapping at ADDRESS among the first EPOCH ones; 0: none. */
uint32_t mapping_index_find(const struct mapping_index *index, uint32_t epoch, uint64_t address);

#endif
