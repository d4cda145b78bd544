/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder of a guest as others see it: between those who fire
 * triggers, the collector that writes files for them, and users who wait for one.
 *
 *	flight_requests_ask, _result, _files	any thread
 *	what is in flight_requests_for()	the collector's thread
 *	everything else				the thread that makes it
 */
#ifndef KVMSCOPE_SESSION_FLIGHT_REQUESTS_H
#define KVMSCOPE_SESSION_FLIGHT_REQUESTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/record/flight_recorder.h"
#include "vmm/sample/trigger.h"

struct flight_requests;

struct flight_requests_options {
	uint64_t before; /* ns of samples before a trigger; 0: all that the rings hold */
	uint64_t after;  /* ns behind it, where nobody says how many */
	uint64_t delay;  /* ns that samples come into the rings after they were taken: a file waits
			    for them */
	unsigned int
		by_guest_max; /* files that the guest alone can cause: the host's disk is finite */
};

/*
 * Bytes for the ring of a vCPU that is to hold TIME ns of samples, FREQUENCY in each second.
 * -EINVAL: there is no such ring.
 */
int flight_ring_size(uint64_t time, unsigned int frequency, bool callchains, size_t *size);

/* -ENOMEM and the errors of trigger_create(). */
int flight_requests_create(struct flight_requests **flight,
			   const struct flight_requests_options *options);
/* NULL is a no-op. */
void flight_requests_destroy(struct flight_requests *flight);

/* For the collector. */
const struct flight_options *flight_requests_for(struct flight_requests *flight);

/* To be fired until flight_requests_destroy(). */
struct trigger *flight_requests_trigger(struct flight_requests *flight);

/* Files that were written until now. */
unsigned int flight_requests_files(struct flight_requests *flight);

/*
 * A user wants a file now, with AFTER ns of samples behind this moment
 * (UINT64_MAX: as many as the options say), at PATH, or as the guest's next one
 * with NULL. Gives the NUMBER to ask for by flight_requests_result(). -EBUSY while
 * too many are waiting; the errors of flight_check_path().
 */
int flight_requests_ask(struct flight_requests *flight, const char *path, uint64_t after,
			uint64_t *number);

struct flight_request_result {
	char path[PATH_MAX]; /* absolute */
	uint64_t samples, bytes;
};

/*
 * What became of what was asked for: 0, -EINPROGRESS while it is not written,
 * -ENOENT for a number that was not given or is long past, else the error of
 * writing it; each with its message.
 */
int flight_requests_result(struct flight_requests *flight, uint64_t number,
			   struct flight_request_result *result);

/*
 * All files are written: waits until each user who asked for one was told by
 * flight_requests_result() what became of it, half a second at most. One may have
 * gone without.
 */
void flight_requests_wait_for_users(struct flight_requests *flight);

#endif
