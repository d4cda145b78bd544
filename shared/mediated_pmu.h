/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVMSCOPE_SHARED_MEDIATED_PMU_H
#define KVMSCOPE_SHARED_MEDIATED_PMU_H

#include <stdbool.h>

/*
 * True if KVM gives its guests the host's counters themselves (parameter enable_mediated_pmu of
 * kvm, kvm_intel or kvm_amd below MODULES, which is "/sys/module" but in tests). Then an open event
 * that counts in guests makes the creation of vCPUs fail, and a VM such events (perf_event_open(2):
 * EOPNOTSUPP; arch/x86/kvm/x86.c, kernel/events/core.c: perf_create_mediated_pmu()). Any thread.
 */
bool mediated_pmu_is_enabled(const char *modules);

#endif
