/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a perf.data file or pipe begins: the events, their ids, and the records
 * that come before all others; and how an event comes to it later.
 *
 * A file that can get events has room for them and for their ids between its
 * header and the data. Only the size of the section of attributes says how many there are,
 * and that is 8 bytes, written last: so what a kill leaves is whole.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_START_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_START_H

#include <sys/types.h>

#include "vmm/perf_data/perf_data_features.h"
#include "vmm/perf_data/perf_data_output.h"
#include "vmm/perf_data/perf_data_writer.h"

struct perf_data_start {
	struct perf_data_output *output; /* nothing is in it yet */
	const struct perf_data_facts *facts;
	enum perspective perspective;
	pid_t vmm_pid;
};

/* What the event of a recording with OPTIONS is to perf. */
void perf_data_describe_event(struct perf_event_attr *attribute,
			      const struct perf_data_options *options);

/* What WATCH of the same recording is, whose first event is CLOCK. */
void perf_data_describe_watch(struct perf_event_attr *attribute,
			      const struct perf_event_attr *clock,
			      const struct perf_data_watch *watch);

/* Writes the beginning at once: a valid file without samples. -ENOMEM, or the errors of writing. */
int perf_data_start(const struct perf_data_start *start);

/* The last one of START->facts came just now: its samples may follow. -ENOMEM, or the errors of
 * writing. */
int perf_data_start_event(const struct perf_data_start *start);

/* The attribute of EVENT has changed. In a pipe it stays as it was: what was written is gone. */
int perf_data_start_change(const struct perf_data_start *start, size_t event);

#endif
