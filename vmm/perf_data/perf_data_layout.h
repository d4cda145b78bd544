/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of a perf.data file: what fields their samples have, in the
 * order of perf_event_open(2), and what else belongs to an id. The
 * attributes are hostile like everything in the file.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_LAYOUT_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/perf_data/perf_data_reader.h"

/* Files with more are refused. */
#define PERF_DATA_EVENTS_MAX 1024
#define PERF_DATA_IDS_MAX    (1u << 20)

/* In the order of their ids once one was looked for. */
struct perf_data_id {
	uint64_t id;
	uint32_t event, place;      /* index, and that of the id in it */
	uint32_t machine_pid, vcpu; /* 0 and UINT32_MAX: not said */
	struct perf_data_count count;
};

struct perf_data_layout {
	struct perf_data_event *events; /* owned */
	size_t event_count;
	struct perf_data_id *ids; /* owned */
	size_t id_count;
	bool sorted;
};

/* Adds the event that struct perf_event_attr in ATTRIBUTE describes; its index, or -EINVAL,
 * -ENOMEM. */
int perf_data_layout_add_event(struct perf_data_layout *layout, struct span attribute);

/* Adds the ids in IDS (of 8 bytes each) to event number EVENT. */
int perf_data_layout_add_ids(struct perf_data_layout *layout, uint32_t event, struct span ids);

/* Gives the events the names that are in the content of FEATURE_EVENT_DESC, unless they have one.
 */
void perf_data_layout_names(struct perf_data_layout *layout, struct span content);

/* Takes a PERF_RECORD_READ, as far as it is of the form that we write. */
void perf_data_layout_read(struct perf_data_layout *layout, struct span record);

/* What PERF_DATA_ID_INDEX says; RECORD is all of it. False: broken, ignored. */
bool perf_data_layout_id_index(struct perf_data_layout *layout, struct span record);

/* The index of the event with ID, or -1. */
int perf_data_layout_event(struct perf_data_layout *layout, uint64_t id);

/* Fills SAMPLE from a whole PERF_RECORD_SAMPLE; false if it does not fit its event. SAMPLE points
 * into RECORD. */
bool perf_data_layout_sample(struct perf_data_layout *layout, struct span record,
			     struct perf_data_sample *sample);

/*
 * Cuts the sample_id off the end of the record that is no sample, and gives
 * the time that stands there, 0 without one. False if the record is too short.
 */
bool perf_data_layout_sample_id(const struct perf_data_layout *layout, struct span *record,
				uint64_t *time);

/* Frees what it holds; zeroed, it holds nothing. */
void perf_data_layout_free(struct perf_data_layout *layout);

#endif
