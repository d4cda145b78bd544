/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perf.data file of ten samples in which every number is known: six times leaf < middle < middle
 * (recursive) and three times leaf < top on vCPU 0; once leaf < top on vCPU 1. Three more samples
 * were lost.
 */
#ifndef KVMSCOPE_TESTS_UNIT_SMALL_RECORDING_H
#define KVMSCOPE_TESTS_UNIT_SMALL_RECORDING_H

#include <stdio.h>

struct profile;

#define SMALL_PERIOD 1000000ull

struct small_recording {
	char path[64], kallsyms[64];
};

void small_recording_make(struct small_recording *recording);
void small_recording_free(struct small_recording *recording);

/* Makes one, loads it with its samples, and exports it by WRITE to TO, which is closed. Returns the
 * result of WRITE. */
int small_recording_export(int (*write)(const struct profile *profile, FILE *to), FILE *to);

#endif
