/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket of a run, and its commands: docs/control-protocol.md. Main thread. */
#ifndef KVMSCOPE_CLI_RUN_CONTROL_H
#define KVMSCOPE_CLI_RUN_CONTROL_H

#include "vmm/cli/run_options.h"
#include "vmm/cli/run_profile.h"

struct run_control;

/*
 * Listens as OPTIONS want it; all must outlive run_control_close(). PROFILE is
 * NULL without one. A place that the user named must be had; where the usual
 * one can not, there is a warning, and CONTROL is NULL, as with --no-control.
 */
int run_control_open(struct run_control **control, const struct run_options *options,
		     struct run_profile *profile);

/* Before the profile is stopped. Works on NULL. */
void run_control_close(struct run_control *control);

#endif
