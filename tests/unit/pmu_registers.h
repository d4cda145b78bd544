/* SPDX-License-Identifier: Apache-2.0 */
/* A PMU for tests: its clocks, and its registers as a guest accesses them. */
#ifndef KVMSCOPE_TESTS_UNIT_PMU_REGISTERS_H
#define KVMSCOPE_TESTS_UNIT_PMU_REGISTERS_H

#include "tests/unit/shim/test.h"
#include "vmm/pmu/guest_pmu.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct pmu_clock clock_rates = { 3000000000, 2000000000, 25000000 };

/* Accesses an existing MSR. The test fails if the PMU does not have it. */
static inline uint64_t get(const struct pmu *pmu, uint32_t index)
{
	uint64_t value = 0;

	CHECK(pmu_read_msr(pmu, index, &value));
	return value;
}

static inline void set(struct pmu *pmu, uint32_t index, uint64_t value)
{
	CHECK(pmu_write_msr(pmu, index, value));
}

#endif
