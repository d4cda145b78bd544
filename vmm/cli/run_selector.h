/* SPDX-License-Identifier: Apache-2.0 */
/* --pid, --name and --socket: which of the runs going on a command is for. Main thread. */
#ifndef KVMSCOPE_CLI_RUN_SELECTOR_H
#define KVMSCOPE_CLI_RUN_SELECTOR_H

#include <argp.h>
#include <sys/types.h>

/* At most one is set; with none the only run is meant. */
struct run_selector {
	pid_t pid;
	const char *name;
	const char *socket;
};

/* A child parser whose input is a struct run_selector, zeroed before. */
extern const struct argp run_selector_argp;

/* A descriptor for control_call(), which the caller closes; the errors of control_runs_connect().
 */
int run_selector_connect(const struct run_selector *selector);

#endif
