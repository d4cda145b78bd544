/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope ctl bp: prints the answers of a run. */
#ifndef KVMSCOPE_CLI_CTL_BREAKPOINTS_H
#define KVMSCOPE_CLI_CTL_BREAKPOINTS_H

#include <jansson.h>

/* Of bp-list: the watches, then the debug registers of each vCPU. */
void ctl_print_breakpoints(const json_t *result);

/* Of bp-add and bp-remove. */
void ctl_print_watch(const json_t *watch);

#endif
