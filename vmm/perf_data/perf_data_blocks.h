/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope's own data in a perf.data file: blocks in the FINISHED_ROUND records, which perf ignores
 * (docs/perf-data.md): counts of losses, wall times of the vCPUs, a flight recording.
 * Parsers accept hostile bytes. Any thread.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_BLOCKS_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "shared/loss_counts.h"
#include "shared/span.h"

/* Maximum number of triggers in one file. */
#define PERF_DATA_FLIGHT_TRIGGERS 16

struct perf_data_flight_trigger {
	uint64_t time;    /* ns, by the clock of the samples */
	char kind[24];    /* "guest reset"; ends with '\0' */
	char detail[192]; /* may come from the guest; ends with '\0' */
};

struct perf_data_flight {
	uint64_t from, to; /* ns, the time that the samples cover; FROM 0: no lower limit */
	uint64_t complete; /* ns; no later sample was overwritten for lack of memory */
	uint64_t missed;   /* triggers of this session so far that have no file */
	uint32_t count;    /* of triggers; 0: not a flight recording */
	struct perf_data_flight_trigger triggers[PERF_DATA_FLIGHT_TRIGGERS]; /* by time */
};

#define PERF_DATA_TIME_STATES 10
#define PERF_DATA_TIME_VCPUS  64

/* Where the wall time of the vCPUs went during the recording: ns by state. */
struct perf_data_times {
	uint32_t states;                       /* 0: the file has no times */
	uint32_t vcpus;                        /* rows; further vCPUs are in the sum only */
	char names[PERF_DATA_TIME_STATES][24]; /* of the states: "guest"; end with '\0' */
	uint64_t sum[PERF_DATA_TIME_STATES];   /* of all vCPUs */
	struct perf_data_vcpu_times {
		uint64_t vcpu, ns[PERF_DATA_TIME_STATES];
	} rows[PERF_DATA_TIME_VCPUS];
};

/* Removes EARLIER, times of the same states. */
void perf_data_times_subtract(struct perf_data_times *times, const struct perf_data_times *earlier);
/* Appends the content of the block of times. */
void perf_data_times_add(struct bytes *to, const struct perf_data_times *times);
/* False, with TIMES unchanged, if CONTENT is broken or of an unknown version. */
bool perf_data_times_parse(struct perf_data_times *times, struct span content);

/* Appends the content of the flight block. */
void perf_data_flight_add(struct bytes *to, const struct perf_data_flight *flight);
/* False, with FLIGHT unchanged, if CONTENT is broken or of an unknown version. */
bool perf_data_flight_parse(struct perf_data_flight *flight, struct span content);

/* Appends the content of the block of losses. */
void perf_data_losses_add(struct bytes *to, const struct losses *losses);
/* Kinds that the writer did not have become 0; kinds that we do not have are dropped. */
void perf_data_losses_parse(struct losses *losses, struct span content);

#endif
