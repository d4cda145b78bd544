/* SPDX-License-Identifier: Apache-2.0 */
/* The control command bp-list: who has which debug register of which vCPU. */
#ifndef KVMSCOPE_CLI_RUN_WATCH_CONTROL_H
#define KVMSCOPE_CLI_RUN_WATCH_CONTROL_H

#include "vmm/cli/run_watch.h"
#include "vmm/control/control.h"

/* WATCH may be NULL, and must otherwise outlive CONTROL. */
void run_watch_control_add(struct control *control, struct run_watch *watch);

#endif
