/* SPDX-License-Identifier: Apache-2.0 */
/* What the feature sections of a perf.data file say, into its summary. Hostile bytes. */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_SUMMARY_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_SUMMARY_H

#include "shared/span.h"
#include "vmm/perf_data/perf_data_format.h"
#include "vmm/perf_data/perf_data_layout.h"
#include "vmm/perf_data/perf_data_reader.h"

/* Takes what FEATURE says from its CONTENT; what does not fit its form is ignored. */
void perf_data_summary_feature(struct perf_data_summary *summary, enum perf_data_feature feature,
			       struct span content);

/* Takes the frequency and, unless FEATURE_EVENT_DESC gave one, the name from the first event. */
void perf_data_summary_event(struct perf_data_summary *summary,
			     const struct perf_data_event *event);

#endif
