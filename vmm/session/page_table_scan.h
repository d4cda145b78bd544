/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports which page tables each process of the guest has. Samples of an attached VM know CR3 at
 * best, and the guest agent knows processes; this connects the two. The guest kernel's task list is
 * scanned repeatedly. What two consecutive scans agree on was true for the whole time between them
 * and is reported with a time in the middle, so that it stays true when the guest's clock is off by
 * less than half the interval. The collector's thread.
 */
#ifndef KVMSCOPE_SESSION_PAGE_TABLE_SCAN_H
#define KVMSCOPE_SESSION_PAGE_TABLE_SCAN_H

#include "shared/ring.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"

/* Least ns between two scans, which also take at most one CPU_BUDGET_SHARE-th of a CPU. The guest's
 * time must be known to a quarter of it. */
#define PAGE_TABLE_SCAN_INTERVAL 100000000ull

struct page_table_scan;

/* Reports go into RING, which has no other writer. Any thread. -ENOMEM. */
int page_table_scan_create(struct page_table_scan **scan, struct ring *ring);

/* Scans, if it is time, the tasks of KERNEL (NULL: unknown), which runs now, through VIEW. */
void page_table_scan_update(struct page_table_scan *scan, const struct guest_kernel *kernel,
			    const struct guest_view *view);

/* NULL is a no-op. */
void page_table_scan_destroy(struct page_table_scan *scan);

#endif
