/* SPDX-License-Identifier: Apache-2.0 */
/* What a report says of a flight recording: which moments it is from. Any thread. */
#ifndef KVMSCOPE_REPORT_REPORT_FLIGHT_H
#define KVMSCOPE_REPORT_REPORT_FLIGHT_H

#include <jansson.h>
#include <stdio.h>

#include "vmm/perf_data/perf_data_reader.h"

/* Lines that begin with '#'; none for a recording that is no flight recorder's. Texts are shown as
 * they are.
 */
void report_flight_text(const struct perf_data_summary *summary, FILE *to);

/* An object, or null; a new reference. NULL without memory. */
json_t *report_flight_json(const struct perf_data_summary *summary);

#endif
