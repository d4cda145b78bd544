/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of a run: what its options say of it, and the ends of a run that are
 * triggers. Main thread. */
#ifndef KVMSCOPE_CLI_RUN_FLIGHT_H
#define KVMSCOPE_CLI_RUN_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"
#include "vmm/session/flight_requests.h"

/*
 * Bytes for the ring of each vCPU, so that --flight's time or memory is met.
 * -EINVAL if there are none: the memory is too small for so many vCPUs, or the
 * time too long for a ring.
 */
int run_flight_ring_size(const struct run_options *options, size_t *size);

/* OPTIONS have --flight. The errors of flight_requests_create(). */
int run_flight_create(struct flight_requests **flight, const struct run_options *options);

/* All vCPUs have ended: an end that is none that was wished for is a trigger. TIMED_OUT: by
 * --timeout. */
void run_flight_guest_ended(struct flight_requests *flight, const struct machine_result *result,
			    bool timed_out);

#endif
