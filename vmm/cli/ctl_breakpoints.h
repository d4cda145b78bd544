/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope ctl bp: what a run answers, for people. */
#ifndef KVMSCOPE_CLI_CTL_BREAKPOINTS_H
#define KVMSCOPE_CLI_CTL_BREAKPOINTS_H

#include <jansson.h>

/* What bp-list answered: the watches, then the registers of each vCPU. */
void ctl_print_breakpoints(const json_t *result);

/* What bp-add or bp-remove did. */
void ctl_print_watch(const json_t *watch);

#endif
