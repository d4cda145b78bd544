/* SPDX-License-Identifier: Apache-2.0 */
/* Sideband events of a guest as records of perf_event_open(2). Any thread. */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_SIDEBAND_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_SIDEBAND_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "shared/sideband_record.h"

/* End of x86-64 user space with five-level paging (Documentation/arch/x86/x86_64/mm.rst). */
#define PERF_DATA_USER_SPACE_END 0x0100000000000000ull

/* perf.data has no record for the end of a mapping: a mapping of this name hides the earlier one.
 * perf shows unmapped addresses by the same name. */
#define PERF_DATA_NOTHING "[unknown]"

/*
 * Appends RECORD without the trailing sample_id; the caller sets its size. MISC is the cpumode.
 * False, with nothing appended, for types that perf.data has no record for. Names are made
 * printable (make_printable()), because perf prints them unchanged.
 */
bool perf_data_sideband_add(struct bytes *to, const struct sideband *record, uint16_t misc);

/* Appends NAME, made printable, cut at the length of a path, and padded with zeros to 8 bytes. */
void perf_data_add_name(struct bytes *to, const char *name);

#endif
