/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's perf with software events in place of hardware's, for hosts
 * without counters: page faults are the instructions, the task's clock (in ns) is
 * all else. Software events count in the host too.
 */
#ifndef KVMSCOPE_TESTS_UNIT_SOFTWARE_PERF_H
#define KVMSCOPE_TESTS_UNIT_SOFTWARE_PERF_H

#include "vmm/pmu/pmu_host.h"

extern const struct pmu_host_perf software_perf;

/* Why perf does not let us have one, or NULL. */
const char *software_perf_denied(void);

#endif
