/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest view of the kernel as it stood when a sample was taken: its stack
 * as it was copied then, its code as it is. All else, which may have changed since, can not be
 * read: a callchain ends there rather than go on with what is not true.
 */
#ifndef KVMSCOPE_ATTACH_SAMPLE_VIEWS_H
#define KVMSCOPE_ATTACH_SAMPLE_VIEWS_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/backend.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/linux/user_map.h"

struct stack_view {
	struct guest_view view;
	struct guest_region regions[2];
	const struct guest_view *live;
	const struct guest_kernel *kernel;
	const struct attach_guest_state *stack;
};

/* Everything must outlive VIEW. One thread at a time. */
void stack_view_init(struct stack_view *view, const struct guest_view *live,
		     const struct guest_kernel *kernel, const struct attach_guest_state *stack);

/*
 * A guest view for samples that are told one behind the other, a moment after they were taken: each
 * page is read once for all of them, as they are of the same few programs. What was read before a
 * sample was taken says nothing of it: then all is read anew. So nothing is further from its sample
 * than if each had been read by itself.
 */

/* Page tables and code of some programs; what is read beyond takes the place of the oldest. */
#define BATCH_VIEW_PAGES 32
#define BATCH_VIEW_PAGE  4096

/* All 0 at first. */
struct batch_view {
	struct guest_view view;
	struct guest_region everything;
	const struct guest_view *live;
	uint64_t since; /* ns, CLOCK_MONOTONIC_RAW: no page was read before; 0: none is there */
	size_t count;   /* that were read since, or could not be */
	uint64_t gpas[BATCH_VIEW_PAGES];
	uint8_t pages[BATCH_VIEW_PAGES][BATCH_VIEW_PAGE];
};

/*
 * The view for a sample of TIME (ns, CLOCK_MONOTONIC_RAW) of the guest that LIVE reads, which is to
 * be the same each time. It is SELF's, until the next call. One thread.
 */
const struct guest_view *batch_view_for(struct batch_view *self, const struct guest_view *live,
					uint64_t time);

/* What was read is read anew, for whichever sample. */
void batch_view_invalidate(struct batch_view *self);

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
	struct batch_view before, after;
	bool after_valid;    /* behind the last look, */
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
const struct guest_view *batch_mappings_after(struct batch_mappings *self,
					      const struct guest_view *live,
					      const struct batch_view *code);

#endif
