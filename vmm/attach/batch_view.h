/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest view for samples that are told one behind the other, a moment after they were taken: each
 * page is read once for all of them, as they are of the same few programs. What was read before a
 * sample was taken says nothing of it: then all is read anew. So nothing is further from its sample
 * than if each had been read by itself.
 */
#ifndef KVMSCOPE_ATTACH_BATCH_VIEW_H
#define KVMSCOPE_ATTACH_BATCH_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_view.h"

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
void batch_view_forget(struct batch_view *self);

#endif
