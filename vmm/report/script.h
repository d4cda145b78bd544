/* SPDX-License-Identifier: Apache-2.0 */
/* Every sample as text, in the form and order of perf script, for scripts that parse that. */
#ifndef KVMSCOPE_REPORT_SCRIPT_H
#define KVMSCOPE_REPORT_SCRIPT_H

#include <stdio.h>

#include "vmm/report/profile_stacks.h"

/*
 * Writes the samples that OPTIONS select, by time. They are held in memory: up to 100 bytes per
 * frame. 0, the errors of profile_load(), or a negative errno of writing.
 */
int script_write(const struct profile_options *options, FILE *to);

#endif
