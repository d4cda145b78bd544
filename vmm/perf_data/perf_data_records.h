/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a perf.data file, one by one: checked, understood or skipped, and delivered. */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_RECORDS_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_RECORDS_H

#include <stdbool.h>

#include "shared/span.h"
#include "vmm/perf_data/perf_data_layout.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/perf_data/perf_data_summary.h"

/* What is known from the header and the records so far. */
struct perf_data_records {
	bool pipe; /* events come as records */
	struct perf_data_layout layout;
	struct perf_data_summary summary;
};

/*
 * Delivers one whole record, which lies at 8-byte alignment. A negative
 * result of a callback, -EINVAL or -ENOMEM for a broken event of a pipe.
 */
int perf_data_records_deliver(struct perf_data_records *records,
			      const struct perf_data_events *events, struct span record);

/* Takes what FEATURE says from its CONTENT; what does not fit its form is ignored. */
void perf_data_records_feature(struct perf_data_records *records, enum perf_data_feature feature,
			       struct span content);

/* Delivers the table of FEATURE_BUILD_ID as far as it is whole. */
int perf_data_records_build_ids(struct perf_data_records *records,
				const struct perf_data_events *events, struct span table);

#endif
