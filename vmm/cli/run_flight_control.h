/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the control socket for the flight recorder: docs/control-protocol.md. */
#ifndef KVMSCOPE_CLI_RUN_FLIGHT_CONTROL_H
#define KVMSCOPE_CLI_RUN_FLIGHT_CONTROL_H

#include "vmm/cli/run_flight.h"
#include "vmm/control/control_server.h"

/* Adds them; FLIGHT outlives CONTROL. NULL: there is none, and they say so. Before control_start().
 */
void run_flight_control_add(struct control *control, struct flight_requests *flight);

#endif
