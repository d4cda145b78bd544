/* SPDX-License-Identifier: Apache-2.0 */
/* What options of `kvmscope run` have to do with each other. */
#ifndef KVMSCOPE_CLI_RUN_OPTIONS_CHECK_H
#define KVMSCOPE_CLI_RUN_OPTIONS_CHECK_H

#include <argp.h>

#include "vmm/cli/run_options.h"

/*
 * For all of a command line, when it is read: ends the program (EXIT_USAGE)
 * where its options do not go together. Sets the size of the rings that the
 * flight recorder needs.
 */
void run_options_check(const struct argp_state *state, struct run_options *options);

#endif
