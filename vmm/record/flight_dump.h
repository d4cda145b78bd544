/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one file of the flight recorder: a copy of the rings, cut by time and in its order. The
 * collector's thread. */
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
	struct jit_code *jit_code; /* NULL: nothing is known of functions made at run time */
	const char *path;
	struct perf_data_flight *flight; /* complete is filled in */
	/* Filled in. */
	uint64_t samples;
	uint64_t bytes;
};

/*
 * Writes what the rings hold now of the time that the flight says, with the
 * kernel as it is found now. The vCPUs may go on writing. The errors of
 * ring_snapshot() and of writing; a file that was begun is closed in any case.
 */
int flight_dump(struct flight_dump *dump);

/* The time of the oldest sample that the rings hold now; 0 where they hold none, or without memory.
 */
uint64_t flight_oldest(const struct collector_options *options);

#endif
