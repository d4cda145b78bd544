/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsers of the perf.data reader. The layout (perf_data_layout.c) has the events of the file, the
 * fields of their samples in the order of perf_event_open(2), and their ids; perf_data_records.c
 * checks each record and passes it to the callbacks, and reads feature sections into the summary.
 * Everything in the file is hostile. One thread.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_RECORDS_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/pool.h"
#include "shared/span.h"
#include "vmm/perf_data/perf_data_format.h"
#include "vmm/perf_data/perf_data_reader.h"

/* Files with more are refused. */
#define PERF_DATA_EVENTS_MAX 1024
#define PERF_DATA_IDS_MAX    (1u << 20)

struct perf_data_id {
	uint64_t id;
	uint32_t event, index;      /* number of the event, and of the id in it */
	uint32_t machine_pid, vcpu; /* 0 and UINT32_MAX: unknown */
	struct perf_data_count count;
};

/* Zeroed: empty. */
struct perf_data_layout {
	struct perf_data_event *events; /* owned */
	size_t event_count, event_capacity;
	struct hash_table ids; /* of struct perf_data_id in the memory, by id */
	struct pool memory;
};

/* Adds the event of the struct perf_event_attr in ATTRIBUTE. Its index, or -EINVAL, -ENOMEM. */
int perf_data_layout_add_event(struct perf_data_layout *layout, struct span attribute);
/* Adds IDS, 8 bytes each, to event number EVENT. 0, -EINVAL or -ENOMEM. */
int perf_data_layout_add_ids(struct perf_data_layout *layout, uint32_t event, struct span ids);
/* Names the events that have no name by the content of FEATURE_EVENT_DESC. */
void perf_data_layout_names(struct perf_data_layout *layout, struct span content);
/* Reads a PERF_RECORD_READ of the form that our writer uses; ignores others. */
void perf_data_layout_read(struct perf_data_layout *layout, struct span record);
/* Reads a whole PERF_DATA_ID_INDEX record; false if it is broken, and thus ignored. */
bool perf_data_layout_id_index(struct perf_data_layout *layout, struct span record);
/* The index of the event with ID, or -1. */
int perf_data_layout_event(struct perf_data_layout *layout, uint64_t id);
/* Fills SAMPLE, which points into RECORD, from a whole PERF_RECORD_SAMPLE; false if RECORD does not
 * fit its event. */
bool perf_data_layout_sample(struct perf_data_layout *layout, struct span record,
			     struct perf_data_sample *sample);
/* Cuts the sample_id off the end of a record that is not a sample, and reads its time, 0 without
 * one. False if the record is too short. */
bool perf_data_layout_sample_id(const struct perf_data_layout *layout, struct span *record,
				uint64_t *time);
void perf_data_layout_free(struct perf_data_layout *layout);

/* The state of reading: what the header and the records so far contain. */
struct perf_data_records {
	bool pipe; /* events come as records */
	struct perf_data_layout layout;
	struct perf_data_summary summary;
};

/*
 * Passes one whole record, aligned to 8 bytes, to the callbacks. A negative result of a callback,
 * or -EINVAL or -ENOMEM for a broken event of a pipe.
 */
int perf_data_records_deliver(struct perf_data_records *records,
			      const struct perf_data_events *events, struct span record);
/* Reads the CONTENT of FEATURE; ignores what is broken. */
void perf_data_records_feature(struct perf_data_records *records, enum perf_data_feature feature,
			       struct span content);
/* Reads the frequency of the first event and, unless FEATURE_EVENT_DESC had one, its name. */
void perf_data_records_first_event(struct perf_data_records *records);
/* Passes the entries of the table in FEATURE_BUILD_ID to the callbacks, up to the first broken one.
 */
int perf_data_records_build_ids(struct perf_data_records *records,
				const struct perf_data_events *events, struct span table);

#endif
