/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings that were found for one sample, for others that are told with it: those of a batch are
 * of the same few programs. What tells that a mapping was there at a sample is not when it was
 * found, but that the page of the address lies where it lay at the sample, in the same memory,
 * before and behind the look at the mapping. So two views are kept of the page tables, one read
 * before and one behind it, and what was found holds for each sample of the batch whose page both
 * of them have where it was.
 *
 * A mapping is found anew where page tables were read in between, and all are when the next batch
 * begins. One thread.
 */
#ifndef KVMSCOPE_ATTACH_BATCH_MAPPINGS_H
#define KVMSCOPE_ATTACH_BATCH_MAPPINGS_H

#include "vmm/attach/batch_view.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/linux/user_map.h"

/* Of some programs with their libraries; what is found beyond takes the place of the oldest. */
#define BATCH_MAPPINGS 64

struct batch_mapping {
	uint64_t mm, page_table; /* GVAs, of the task that it was found for */
	uint32_t images;         /* generation of the table that has its image */
	uint64_t since;          /* BEFORE then: as when it was begun, */
	size_t pages;            /* and with so many pages, those that were read before the look */
	struct user_mapping mapping;
};

/* All 0 at first. */
struct batch_mappings {
	struct batch_view before, behind;
	bool behind_begun;   /* behind the last look, */
	uint64_t code_since; /* and when of the code there was that since then */
	size_t code_pages;   /* with so many pages */
	struct batch_mapping found[BATCH_MAPPINGS];
	size_t count; /* that were found so far */
};

/* What a sample of TIME (ns, CLOCK_MONOTONIC_RAW) is to be compared with before its mappings are
 * found. */
const struct guest_view *batch_mappings_before(struct batch_mappings *self,
					       const struct guest_view *live, uint64_t time);

/*
 * Puts the mapping of ADDRESS into MAP, which was begun for TASK, if there is one: behind
 * batch_mappings_before() for the same sample, and what was compared.
 */
void batch_mappings_find(struct batch_mappings *self, struct user_map *map,
			 const struct guest_task *task, uint64_t address);

/* What the sample is to be compared with behind all that was found, and what was read into CODE. */
const struct guest_view *batch_mappings_behind(struct batch_mappings *self,
					       const struct guest_view *live,
					       const struct batch_view *code);

#endif
