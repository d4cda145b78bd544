/* SPDX-License-Identifier: Apache-2.0 */
/* Prints where the wall time of vCPUs went. Main thread. */
#ifndef KVMSCOPE_CLI_WALL_TIMES_H
#define KVMSCOPE_CLI_WALL_TIMES_H

#include <jansson.h>
#include <stdio.h>

#include "vmm/attach/vcpu_times.h"

/* Prints a line of titles and one of percents of WALL ns, which TIMES are a part of. */
void wall_times_print(const struct vcpu_times *times, enum vcpu_times_detail detail, double wall,
		      FILE *to);

/* An object with the ns of each state. */
json_t *wall_times_json(const struct vcpu_times *times, enum vcpu_times_detail detail);

#endif
