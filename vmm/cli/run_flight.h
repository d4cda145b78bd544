/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder of a run: between those who fire triggers, the collector
 * that writes files for them, and users who wait for one.
 *
 *	run_flight_ask, _result, _files	any thread
 *	what is in run_flight_options()	the collector's thread
 *	everything else			the main thread
 */
#ifndef KVMSCOPE_CLI_RUN_FLIGHT_H
#define KVMSCOPE_CLI_RUN_FLIGHT_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/error.h"
#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"
#include "vmm/profile/flight.h"
#include "vmm/sample/trigger.h"

struct run_flight;

/*
 * Bytes for the ring of each vCPU, so that --flight's time or memory is met.
 * -EINVAL if there are none: the memory is too small for so many vCPUs, or the
 * time too long for a ring.
 */
int run_flight_ring_size(const struct run_options *options, size_t *size);

/* OPTIONS, which have --flight, must outlive it. -ENOMEM and the errors of trigger_create(). */
int run_flight_create(struct run_flight **flight, const struct run_options *options);
/* NULL is a no-op. */
void run_flight_destroy(struct run_flight *flight);

/* For the collector. */
const struct flight_options *run_flight_options(struct run_flight *flight);

/* To be fired until run_flight_destroy(). */
struct trigger *run_flight_trigger(struct run_flight *flight);

/* All vCPUs have ended: an end that is none that was wished for is a trigger. TIMED_OUT: by --timeout. */
void run_flight_guest_ended(struct run_flight *flight, const struct machine_result *result, bool timed_out);

/* Files that were written until now. */
unsigned int run_flight_files(struct run_flight *flight);

/*
 * A user wants a file now, with AFTER ns of samples behind this moment
 * (UINT64_MAX: as many as the run's --after), at PATH, or as the run's next one
 * with NULL. Gives the NUMBER to ask for by run_flight_result(). -EBUSY while
 * too many are waiting.
 */
int run_flight_ask(struct run_flight *flight, const char *path, uint64_t after, uint64_t *number);

struct run_flight_result {
	char path[PATH_MAX]; /* absolute */
	uint64_t samples, bytes;
};

/*
 * What became of what was asked for: 0, -EINPROGRESS while it is not written,
 * -ENOENT for a number that was not given or is long past, else the error of
 * writing it; each with its message.
 */
int run_flight_result(struct run_flight *flight, uint64_t number, struct run_flight_result *result);

/*
 * All files are written: waits until each user who asked for one was told by
 * run_flight_result() what became of it, half a second at most. One may have
 * gone without.
 */
void run_flight_wait_for_users(struct run_flight *flight);

#endif
