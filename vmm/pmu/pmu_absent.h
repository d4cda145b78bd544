/* SPDX-License-Identifier: Apache-2.0 */
/* A guest without a PMU: its registers behave as KVM's without one, and the first access is
 * reported with the reason. Guests that do not count are not bothered with it. */
#ifndef KVMSCOPE_PMU_PMU_ABSENT_H
#define KVMSCOPE_PMU_PMU_ABSENT_H

#include <stdatomic.h>

struct vcpu_pmu_operations;

/* vm->pmu_absent; set it before the vCPUs run. */
struct pmu_absent {
	char reason[320];
	atomic_flag reported;
};

/* For struct vcpu_handlers. If this KVM cannot filter MSRs, no access is reported. */
extern const struct vcpu_pmu_operations pmu_absent_operations;

#endif
