/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's perf with software events instead of hardware events, for hosts without counters:
 * page faults replace instructions, the task clock (in ns) everything else. Software events also
 * count on the host.
 */
#ifndef KVMSCOPE_TESTS_UNIT_SOFTWARE_PERF_H
#define KVMSCOPE_TESTS_UNIT_SOFTWARE_PERF_H

#include "vmm/pmu/pmu_host.h"

extern const struct pmu_host_perf software_perf;

/* Why perf does not allow such an event, or NULL. */
const char *software_perf_denied(void);

#endif
