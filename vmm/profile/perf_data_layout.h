/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of a perf.data file: what fields their samples have, in the
 * order of perf_event_open(2), and what else belongs to an id. The
 * attributes are hostile like everything in the file.
 */
#ifndef KVMSCOPE_PROFILE_PERF_DATA_LAYOUT_H
#define KVMSCOPE_PROFILE_PERF_DATA_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/profile/perf_data_reader.h"

/* Files with more are refused. */
#define PERF_DATA_EVENTS_MAX 1024
#define PERF_DATA_IDS_MAX    (1u << 20)

struct perf_data_event {
	uint64_t sample_type; /* PERF_SAMPLE_* */
	uint64_t read_format; /* PERF_FORMAT_* */
	uint64_t frequency;   /* Hz, 0 if it has a period */
	uint64_t period;      /* what a sample stands for that does not say it; 0 with a frequency */
	uint32_t type;
	uint64_t config;
	bool sample_id_all;
};

/* Sorted by id once perf_data_layout_sort() ran. */
struct perf_data_id {
	uint64_t id;
	uint32_t event;             /* index */
	uint32_t machine_pid, vcpu; /* 0 and UINT32_MAX: not said */
};

struct perf_data_layout {
	struct perf_data_event *events; /* owned */
	size_t event_count;
	struct perf_data_id *ids; /* owned */
	size_t id_count;
	bool sorted;
};

/* Adds the event that struct perf_event_attr in ATTRIBUTE describes; its index, or -EINVAL, -ENOMEM. */
int perf_data_layout_add_event(struct perf_data_layout *layout, struct span attribute);

/* Adds the ids in IDS (of 8 bytes each) to event number EVENT. */
int perf_data_layout_add_ids(struct perf_data_layout *layout, uint32_t event, struct span ids);

/* What PERF_DATA_ID_INDEX says; RECORD is all of it. False: broken, ignored. */
bool perf_data_layout_id_index(struct perf_data_layout *layout, struct span record);

/* Fills SAMPLE from a whole PERF_RECORD_SAMPLE; false if it does not fit its event. SAMPLE points into
 * RECORD. */
bool perf_data_layout_sample(struct perf_data_layout *layout, struct span record,
			     struct perf_data_sample *sample);

/*
 * Cuts the sample_id off the end of the record that is no sample, and gives
 * the time that stands there, 0 without one. False if the record is too short.
 */
bool perf_data_layout_sample_id(const struct perf_data_layout *layout, struct span *record, uint64_t *time);

void perf_data_layout_free(struct perf_data_layout *layout);

#endif
