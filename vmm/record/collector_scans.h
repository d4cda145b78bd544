/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans of the guest's list of modules: which are loaded, and their symbols when they have changed.
 * Collector thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_SCANS_H
#define KVMSCOPE_RECORD_COLLECTOR_SCANS_H

#include "vmm/record/collector_kernel.h"

/* What is read between the two calls lies within the scan's time, on whichever CPU samples read
 * their clock. */
struct collector_scan collector_scan_begin(void);
void collector_scan_end(struct collector_scan *scan);
/* Now, plus the largest difference of two CPUs' clocks: ns, by the clock of samples. */
uint64_t collector_scan_latest(void);

/* Scans the list of the newest kernel if that is due at NOW (ns). Errors of writing. */
int collector_scans_turn(struct collector_kernel *kernel, uint64_t now);
/* The last scan: modules that it does not find ended at the one before. Errors of writing. */
int collector_scans_finish(struct collector_kernel *kernel);
/* Nothing uses replaced kernels: takes over what their samples confirmed, and frees what samples of
 * the newest were checked against before. */
void collector_scans_reclaim(struct collector_kernel *kernel);

#endif
