/* SPDX-License-Identifier: Apache-2.0 */
/* What happened in a guest, as the records of perf_event_open(2) that readers of perf.data know. */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_SIDEBAND_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_SIDEBAND_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "shared/sideband_record.h"

/* User space of x86-64 with five levels of page tables ends here (Documentation/x86/x86_64/mm.rst).
 */
#define PERF_DATA_USER_SPACE_END 0x0100000000000000ull

/*
 * perf.data has no record for the end of a mapping. A mapping of this name
 * hides what was there; perf shows addresses without a mapping by the same name.
 */
#define PERF_DATA_NOTHING "[unknown]"

/*
 * Appends RECORD but for the sample's id behind it; its size is to be set by the caller. MISC is
 * the cpumode. False, with nothing appended, for types that perf.data has no record for.
 * Names are cleaned (make_printable()): perf prints them as they are.
 */
bool perf_data_sideband_add(struct bytes *to, const struct sideband *record, uint16_t misc);

/* Appends NAME, cleaned, cut off where it is longer than a path may be, and padded with zeros to 8
 * bytes. */
void perf_data_add_name(struct bytes *to, const char *name);

#endif
