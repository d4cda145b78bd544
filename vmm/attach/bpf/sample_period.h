/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: the weight of a sample. A clock that runs late skips periods (kernel: hrtimer_forward()), so
 * a sample stands for all whole periods that the event has counted since the last one.
 */
#ifndef KVMSCOPE_ATTACH_BPF_SAMPLE_PERIOD_H
#define KVMSCOPE_ATTACH_BPF_SAMPLE_PERIOD_H

#include "vmm/attach/bpf/guest_memory.h"

/* COUNTER is that of the event, which is 0 again if the event was opened anew. Its interrupt may
 * come a little early. */
static __always_inline __u64 passed_periods(struct scratch *scratch, __u64 counter, __u64 period)
{
	__u64 passed;

	if (counter + period < scratch->counted)
		scratch->counted = 0;
	passed = counter > scratch->counted ? counter - scratch->counted : 0;
	passed = passed < period || !period ? period : passed - passed % period;
	scratch->counted += passed;
	return passed;
}

#endif
