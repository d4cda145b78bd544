/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to a flight recorder: between triggers, the collector that writes files for them, and
 * users who wait for a file.
 *
 *	flight_requests_add, _result, _files            any thread
 *	the functions in flight_requests_options_of()   the collector's thread
 *	everything else                                 the thread that created it
 */
#ifndef KVMSCOPE_SESSION_FLIGHT_REQUESTS_H
#define KVMSCOPE_SESSION_FLIGHT_REQUESTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/record/flight_recorder.h"
#include "vmm/sample/trigger.h"

struct flight_requests;

struct flight_requests_options {
	uint64_t before; /* ns of samples before a trigger; 0: all that the rings hold */
	uint64_t after;  /* ns after it, unless a request says otherwise */
	uint64_t delay;  /* ns that samples can take to reach their rings: a file waits for them */
	unsigned int by_guest_max; /* files that the guest alone can cause, as the disk is finite */
};

/* Bytes of a vCPU's ring that holds TIME ns of samples at FREQUENCY Hz. -EINVAL: none is that
 * large. */
int flight_ring_size(uint64_t time, unsigned int frequency, bool callchains, size_t *size);

/* -ENOMEM, the errors of trigger_create(). */
int flight_requests_create(struct flight_requests **flight,
			   const struct flight_requests_options *options);
/* NULL is a no-op. */
void flight_requests_destroy(struct flight_requests *flight);

/* For the collector; valid as long as FLIGHT. */
const struct flight_options *flight_requests_options_of(struct flight_requests *flight);

/* Valid as long as FLIGHT. */
struct trigger *flight_requests_trigger(struct flight_requests *flight);

/* Number of files written so far. */
unsigned int flight_requests_files(struct flight_requests *flight);

/*
 * Requests a file with AFTER ns of samples from now on (UINT64_MAX: as the options say), at PATH,
 * or with NULL as the session's next one. NUMBER identifies the request for
 * flight_requests_result(). -EBUSY: too many requests are pending; the errors of
 * flight_check_path().
 */
int flight_requests_add(struct flight_requests *flight, const char *path, uint64_t after,
			uint64_t *number);

/*
 * The state of request NUMBER as members of RESULT, the answer to dump-result
 * (docs/control-protocol.md): complete, and then file, samples and bytes. -ENOENT: the number is
 * unknown or too old; else the error of writing the file.
 */
int flight_requests_result(struct flight_requests *flight, uint64_t number, json_t *result);

/* After all files are written: waits up to half a second until users have read their results. A
 * user may have gone away. */
void flight_requests_wait_for_users(struct flight_requests *flight);

#endif
