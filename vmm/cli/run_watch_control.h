/* SPDX-License-Identifier: Apache-2.0 */
/* The control commands bp-list, bp-add and bp-remove: who has which debug register of which vCPU,
 * and watches. */
#ifndef KVMSCOPE_CLI_RUN_WATCH_CONTROL_H
#define KVMSCOPE_CLI_RUN_WATCH_CONTROL_H

#include "vmm/cli/run_watch.h"
#include "vmm/control/control_server.h"

/* WATCH is NULL in a run without a profile, and must otherwise outlive CONTROL. */
void run_watch_control_add(struct control *control, struct run_watch *watch);

#endif
