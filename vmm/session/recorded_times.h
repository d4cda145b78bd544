/* SPDX-License-Identifier: Apache-2.0 */
/* The wall times of vCPUs in the form that a recording has. Any thread. */
#ifndef KVMSCOPE_SESSION_RECORDED_TIMES_H
#define KVMSCOPE_SESSION_RECORDED_TIMES_H

#include "vmm/attach/vcpu_times.h"
#include "vmm/record/collector.h"

/* The states that DETAIL has; the guest's time is divided into user and kernel time if there are
 * enough samples for an estimate. */
void recorded_times(struct perf_data_times *to, const struct vcpu_times_rows *rows,
		    enum vcpu_times_detail detail);

#endif
