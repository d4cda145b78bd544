/* SPDX-License-Identifier: Apache-2.0 */
/* Every sample as text, in the form and order of perf script: what scripts written for that can
 * read. */
#ifndef KVMSCOPE_REPORT_SCRIPT_H
#define KVMSCOPE_REPORT_SCRIPT_H

#include <stdio.h>

#include "vmm/report/profile_stacks.h"

/*
 * All samples that OPTIONS choose, by time. Holds them in memory, some 100
 * bytes for each frame at most. 0, the errors of profile_load(), or a
 * negative errno of writing.
 */
int script_write(const struct profile_options *options, FILE *to);

#endif
