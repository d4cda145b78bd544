/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one file of the flight recorder: a copy of the rings, cut and ordered by time. Collector
 * thread. */
#ifndef KVMSCOPE_RECORD_FLIGHT_DUMP_H
#define KVMSCOPE_RECORD_FLIGHT_DUMP_H

#include "vmm/perf_data/perf_data_blocks.h"
#include "vmm/record/collector.h"
#include "vmm/record/collector_kernel.h"
#include "vmm/record/flight_deferred.h"
#include "vmm/record/flight_sideband.h"
#include "vmm/record/jit_code.h"

struct flight_dump {
	const struct collector_options *options; /* output.path apart */
	struct collector_kernel *kernel;         /* no file is open */
	struct flight_sideband *sideband;
	const struct flight_deferred *late;
	struct jit_code *jit_code; /* NULL: no run-time code is known */
	const char *path;
	struct perf_data_flight *flight; /* complete is filled in */
	/* Filled in. */
	uint64_t samples;
	uint64_t bytes;
};

/* Writes what the rings hold of the flight's time, with the kernel as it is now. vCPUs may go on
 * writing. The errors of ring_snapshot() and of writing; the file is closed in any case. */
int flight_dump(struct flight_dump *dump);

/* Time of the oldest sample in the rings; 0 if they are empty, or without memory. */
uint64_t flight_oldest(const struct collector_options *options);

#endif
