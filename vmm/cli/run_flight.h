/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of a run: its options, its control commands, and the ends of a run that are
 * triggers. Main thread. */
#ifndef KVMSCOPE_CLI_RUN_FLIGHT_H
#define KVMSCOPE_CLI_RUN_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/cli/run_options.h"
#include "vmm/control/control_server.h"
#include "vmm/machine/machine.h"
#include "vmm/session/flight_requests.h"

/* Bytes of each vCPU's ring, for the time or memory of --flight. -EINVAL: the memory is too small
 * for the vCPUs, or the time too long for a ring. */
int run_flight_ring_size(const struct run_options *options, size_t *size);

/* For OPTIONS with --flight. The errors of flight_requests_create(). */
int run_flight_create(struct flight_requests **flight, const struct run_options *options);

/* All vCPUs have ended, TIMED_OUT by --timeout: fires a trigger unless the end is a regular one. */
void run_flight_guest_ended(struct flight_requests *flight, const struct machine_result *result,
			    bool timed_out);

/* Adds the commands dump and dump-result (docs/control-protocol.md) before control_start(). FLIGHT
 * must outlive CONTROL; with NULL the commands are refused. */
void run_flight_add_commands(struct control *control, struct flight_requests *flight);

#endif
