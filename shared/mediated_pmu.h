/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVMSCOPE_SHARED_MEDIATED_PMU_H
#define KVMSCOPE_SHARED_MEDIATED_PMU_H

#include <stdbool.h>

/*
 * True if KVM passes the host's counters to its guests: parameter enable_mediated_pmu of kvm,
 * kvm_intel or kvm_amd below MODULES, "/sys/module" except in tests. On such a host an open event
 * that counts in guests makes the creation of vCPUs fail (EBUSY), and an existing VM makes
 * perf_event_open(2) fail for such events (EOPNOTSUPP; kernel/events/core.c,
 * perf_create_mediated_pmu()). Any thread.
 */
bool mediated_pmu_is_enabled(const char *modules);

#endif
