/* SPDX-License-Identifier: Apache-2.0 */
/* The control commands bp-list, bp-add and bp-remove: debug registers and watches. */
#ifndef KVMSCOPE_CLI_RUN_WATCH_CONTROL_H
#define KVMSCOPE_CLI_RUN_WATCH_CONTROL_H

#include "vmm/cli/run_watch.h"
#include "vmm/control/control_server.h"

/* WATCH is NULL in a run without a profile, else it must outlive CONTROL. Before control_start().
 */
void run_watch_add_commands(struct control *control, struct run_watch *watch);

/*
 * The number of the one watch that TEXT selects among those that were not removed: by its number in
 * decimal (which is not checked), by the name of its event, or by its specification, with all
 * options if several watch the same address. -ENOENT, -EINVAL. Any thread.
 */
int run_watch_find(struct run_watch *watch, const char *text);

#endif
