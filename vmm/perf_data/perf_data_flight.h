/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a perf.data file that a flight recorder wrote says about itself, in a
 * block of its rounds (docs/perf-data.md): which moments it was written
 * for, and what of the time before them is in it.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_FLIGHT_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "shared/span.h"

/* Those that one file can name. */
#define PERF_DATA_FLIGHT_TRIGGERS 16

struct perf_data_flight_trigger {
	uint64_t time;    /* ns, by the clock of the samples */
	char kind[24];    /* "guest reset"; ends with '\0' */
	char detail[192]; /* may be the guest's words; ends with '\0' */
};

struct perf_data_flight {
	uint64_t from,
		to; /* the file has the samples of this time, ns; FROM 0: all that there were */
	uint64_t complete; /* of them none later than this is missing for lack of memory */
	uint64_t missed;   /* triggers of this run for which there is no file, until now */
	uint32_t count;    /* of triggers; 0: this is no flight recording */
	struct perf_data_flight_trigger
		triggers[PERF_DATA_FLIGHT_TRIGGERS]; /* in the order of time */
};

/* Appends the section's content. */
void perf_data_flight_add(struct bytes *to, const struct perf_data_flight *flight);

/* Reads it; false, with FLIGHT as it was, if it is broken or of a version that is not known.
 * Hostile bytes.
 */
bool perf_data_flight_parse(struct perf_data_flight *flight, struct span content);

#endif
