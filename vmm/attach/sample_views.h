/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest views for samples that are processed some time after they were recorded.
 *
 * A stack view shows the guest at the time of the sample: the copies of its stacks, and its code.
 * Memory that may have changed since is unreadable: a call chain ends there.
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
	struct guest_region regions[1 + ATTACH_STACKS];
	const struct guest_view *live;
	const struct guest_kernel *kernel;
	const struct attach_guest_state *stack;
};

/* KERNEL NULL: unknown. All arguments must outlive VIEW. One thread at a time. */
void stack_view_init(struct stack_view *view, const struct guest_view *live,
		     const struct guest_kernel *kernel, const struct attach_guest_state *stack);

/*
 * A view for a batch of samples, mostly of the same few programs: each page is read once for all of
 * them. A page that was read before a sample was recorded is not valid for it: all pages are then
 * read again. No page is older than the sample.
 */

/* Page tables and code of some programs; the oldest page is replaced. */
#define BATCH_VIEW_PAGES 32
#define BATCH_VIEW_PAGE  4096

/* Zero-initialized. */
struct batch_view {
	struct guest_view view;
	struct guest_region everything;
	const struct guest_view *live;
	uint64_t since; /* ns, CLOCK_MONOTONIC_RAW: all pages were read later; 0: no pages */
	size_t count;   /* pages read since, or unreadable */
	uint64_t gpas[BATCH_VIEW_PAGES];
	uint8_t pages[BATCH_VIEW_PAGES][BATCH_VIEW_PAGE];
};

/* The view of LIVE's guest, always the same, for a sample of TIME (ns,
 * CLOCK_MONOTONIC_RAW). Valid until the next call. One thread. */
const struct guest_view *batch_view_for(struct batch_view *self, const struct guest_view *live,
					uint64_t time);

/* Discards all pages. */
void batch_view_invalidate(struct batch_view *self);

/*
 * Mappings found for one sample, reused for others of its batch. A mapping existed at the time of a
 * sample if the page of the address has not changed since, in the same memory, both before and
 * after the mapping was looked up. There are two views of the page tables, read before and after
 * the lookup, and a mapping is valid for each sample of the batch whose page is unchanged in both.
 *
 * After more page tables were read, and for the next batch, mappings are looked up again. One
 * thread.
 */

/* Some programs with their libraries; the oldest mapping is replaced. */
#define BATCH_MAPPINGS 64

struct batch_mapping {
	uint64_t mm, page_table; /* GVAs, of its task */
	uint32_t images;         /* generation of the table with its image */
	uint64_t since;          /* of view BEFORE at the lookup, */
	size_t pages;            /* and its number of pages */
	struct user_mapping mapping;
};

/* All 0 at first. */
struct batch_mappings {
	struct batch_view before, after;
	bool after_valid;    /* no lookup since AFTER was read; */
	uint64_t code_since; /* the time of the code view then, */
	size_t code_pages;   /* and its number of pages */
	struct batch_mapping found[BATCH_MAPPINGS];
	size_t count; /* found so far */
};

/* The view to compare a sample of TIME (ns, CLOCK_MONOTONIC_RAW) with before looking up
 * mappings. */
const struct guest_view *batch_mappings_before(struct batch_mappings *self,
					       const struct guest_view *live, uint64_t time);

/* Adds the mapping of ADDRESS to MAP, which was begun for TASK, if there is one. After
 * batch_mappings_before() and the comparison. */
void batch_mappings_find(struct batch_mappings *self, struct user_map *map,
			 const struct guest_task *task, uint64_t address);

/* The view to compare the sample with after the lookups, and after CODE was read. */
const struct guest_view *batch_mappings_after(struct batch_mappings *self,
					      const struct guest_view *live,
					      const struct batch_view *code);

#endif
