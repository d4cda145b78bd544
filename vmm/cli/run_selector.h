/* SPDX-License-Identifier: Apache-2.0 */
/* --pid, --name and --socket: which running kvmscope a command is for. Main thread. */
#ifndef KVMSCOPE_CLI_RUN_SELECTOR_H
#define KVMSCOPE_CLI_RUN_SELECTOR_H

#include "shared/option_table.h"

/* At most one is set; without any, the only running one is selected. */
struct run_selector {
	unsigned int pid;
	const char *name, *socket;
};

/* A group of options that fills a zeroed SELECTOR. */
struct option_group run_selector_options(struct run_selector *selector);

/* A descriptor for control_call(), which the caller closes; the errors of control_runs_connect().
 */
int run_selector_connect(const struct run_selector *selector);

#endif
