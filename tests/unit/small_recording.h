/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perf.data file of ten samples whose every number is known: on vCPU 0 six
 * times leaf < middle < middle (it recurses) and three times leaf < top; on
 * vCPU 1 once leaf < top. Three more were lost.
 */
#ifndef KVMSCOPE_TESTS_UNIT_SMALL_RECORDING_H
#define KVMSCOPE_TESTS_UNIT_SMALL_RECORDING_H

#define SMALL_PERIOD 1000000ull

struct small_recording {
	char path[64], kallsyms[64];
};

void small_recording_make(struct small_recording *recording);
void small_recording_free(struct small_recording *recording);

#endif
