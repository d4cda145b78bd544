/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket of a run, and its commands: docs/control-protocol.md. Main thread. */
#ifndef KVMSCOPE_CLI_RUN_CONTROL_H
#define KVMSCOPE_CLI_RUN_CONTROL_H

#include "vmm/cli/run_options.h"
#include "vmm/cli/run_profile.h"
#include "vmm/cli/run_watch.h"

struct run_control;

/*
 * Listens as OPTIONS say; all arguments must outlive run_control_close(). PROFILE is NULL without
 * one. A socket that the user named must be available. If the default one is not, that is logged
 * and *CONTROL is NULL, as with --no-control.
 */
int run_control_open(struct run_control **control, const struct run_options *options,
		     struct run_profile *profile);

/* Before the profile is stopped. NULL is a no-op. */
void run_control_close(struct run_control *control);

/*
 * The number of the one watch that TEXT selects among those that were not removed: by its number in
 * decimal (which is not checked), by the name of its event, or by its specification, with all
 * options if several watch the same address. -ENOENT, -EINVAL. Any thread.
 */
int run_watch_find(struct run_watch *watch, const char *text);

#endif
