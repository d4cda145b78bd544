/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's looks at the list of the guest's modules: which are there, and
 * their symbols when others are. The collector's thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_SCANS_H
#define KVMSCOPE_RECORD_COLLECTOR_SCANS_H

#include "vmm/record/collector_kernel.h"

/* Everything that is read between the two lies in the look, whichever CPU took the time of a
 * sample. */
struct collector_scan collector_scan_begin(void);
void collector_scan_end(struct collector_scan *look);
/* As long behind this moment as the clocks of two CPUs may be apart: ns, by the clock of samples.
 */
uint64_t collector_scan_latest(void);

/* A look at the newest kernel's list if it is time to, NOW being in ns. Errors of writing the file.
 */
int collector_scans_turn(struct collector_kernel *kernel, uint64_t now);
/* The last one: what it does not see ended at the one before. Errors of writing. */
int collector_scans_finish(struct collector_kernel *kernel);
/* Nobody uses what was replaced any more: takes over what it found, and frees what samples of the
 * newest were checked against before. */
void collector_scans_reclaim(struct collector_kernel *kernel);

#endif
