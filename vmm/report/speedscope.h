/* SPDX-License-Identifier: Apache-2.0 */
/* Exports a profile in speedscope's format (www.speedscope.app/file-format-schema.json). */
#ifndef KVMSCOPE_REPORT_SPEEDSCOPE_H
#define KVMSCOPE_REPORT_SPEEDSCOPE_H

#include <stdio.h>

#include "vmm/report/profile_stacks.h"

/*
 * Writes the only event of PROFILE, which has its samples kept: one profile per vCPU, samples in
 * order of time; successive samples of one stack are merged. The outermost frames are the program
 * and, if it has a name of its own, the thread. 0, -ENOMEM or a negative errno of writing.
 */
int speedscope_write(const struct profile *profile, FILE *to);

#endif
