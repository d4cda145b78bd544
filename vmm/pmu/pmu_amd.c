/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD's core performance counters (APM vol. 2 13.2.1). There is no status register for overflows:
 * software checks the counter's highest bit (Linux, arch/x86/events/amd/core.c,
 * amd_pmu_test_overflow_topbit()). MSR addresses: Linux, arch/x86/include/asm/msr-index.h, MSR_K7_*
 * and MSR_F15H_PERF_*.
 */
#include <stddef.h>

#include "vmm/pmu/pmu_events.h"

#define AMD_LEGACY 4
#define AMD_CORE   6

#define MSR_LEGACY_SELECT  0xc0010000
#define MSR_LEGACY_COUNTER 0xc0010004
#define MSR_CORE           0xc0010200 /* a select, its counter, the next select */

/* CPUID 8000_0001H ECX, APM vol. 3 appendix E.4.2 */
#define CPUID_IBS               (1u << 10)
#define CPUID_PERF_CTR_EXT_CORE (1u << 23)
#define CPUID_PERF_CTR_EXT_NB   (1u << 24)
#define CPUID_PERF_TSC          (1u << 27)
#define CPUID_PERF_CTR_EXT_LLC  (1u << 28)

/*
 * Bits 63:36, 21 and 19 are reserved. So are 41:40, HostOnly and GuestOnly, without SVM; with SVM,
 * run time does not distinguish them. Writes to them are ignored (Linux, arch/x86/kvm/svm/pmu.c:
 * reserved_bits, amd_pmu_set_msr()).
 */
#define SELECT_WRITABLE UINT64_C(0xfffd7ffff)

/*
 * Events with a generic name in Linux, of all families (arch/x86/events/amd/core.c,
 * amd_*perfmon_event_map), numbered as in the processors' manuals (PPR), Core::X86::Pmc. PMCx120 is
 * in Zen 4 and later.
 */
static const struct pmu_event amd_events[] = {
	{ 0x076, 0x00, PMU_CORE_CYCLES, "core cycles" },
	{ 0x120, 0x01, PMU_REFERENCE_CYCLES, "reference cycles" },
	{ 0x0c0, 0x00, PMU_NOTHING, "instructions" },
	{ 0x0c2, 0x00, PMU_NOTHING, "branches" },
	{ 0x0c3, 0x00, PMU_NOTHING, "branch mispredictions" },
	{ 0x07d, 0x07, PMU_NOTHING, "L2 requests" },
	{ 0x07e, 0x07, PMU_NOTHING, "L2 misses" },
	{ 0x060, 0xff, PMU_NOTHING, "L2 requests" },
	{ 0x064, 0x09, PMU_NOTHING, "L2 misses" },
	{ 0x0d0, 0x00, PMU_NOTHING, "stalled cycles of the front end" },
	{ 0x0d1, 0x00, PMU_NOTHING, "stalled cycles of the back end" },
	{ 0x087, 0x02, PMU_NOTHING, "stalled cycles of the front end" },
	{ 0x087, 0x01, PMU_NOTHING, "stalled cycles of the back end" },
	{ 0x0a9, 0x00, PMU_NOTHING, "stalled cycles of the front end" },
};
#define AMD_EVENTS (sizeof(amd_events) / sizeof(amd_events[0]))

/* No processor with legacy counters only has PMCx120, and Linux has no ref-cycles there. */
static const struct pmu_event legacy_reference = { 0x120, 0x01, PMU_NOTHING, "reference cycles" };

static uint32_t counters_of(const struct pmu_state *state)
{
	return state->model == PMU_AMD_CORE ? AMD_CORE : AMD_LEGACY;
}

/* The counter of MSR INDEX, and whether the MSR is its select; -1 if there is none. */
static int find_register(const struct pmu_state *state, uint32_t index, bool *is_select)
{
	if (pmu_in(index, MSR_LEGACY_SELECT, AMD_LEGACY)) {
		*is_select = true;
		return (int)(index - MSR_LEGACY_SELECT);
	}
	if (pmu_in(index, MSR_LEGACY_COUNTER, AMD_LEGACY)) {
		*is_select = false;
		return (int)(index - MSR_LEGACY_COUNTER);
	}
	if (state->model == PMU_AMD_CORE && pmu_in(index, MSR_CORE, 2 * AMD_CORE)) {
		*is_select = (index - MSR_CORE) % 2 == 0;
		return (int)(index - MSR_CORE) / 2;
	}
	return -1;
}

static void amd_reset(struct pmu_state *state)
{
}

static void amd_writable(struct pmu_state *state)
{
	for (unsigned int i = 0; i < counters_of(state); i++) {
		state->select[i] = SELECT_WRITABLE;
		state->general[i] = PMU_COUNTER_MASK;
	}
}

static void amd_cpuid(const struct pmu *pmu, uint32_t function, uint32_t index,
		      uint32_t registers[4])
{
	switch (function) {
	case 0x1: /* Intel: no PDCM, DTES64, DS */
		registers[2] &= ~(1u << 15 | 1u << 2);
		registers[3] &= ~(1u << 21);
		break;
	case 0x80000001:
		registers[2] &= ~(CPUID_IBS | CPUID_PERF_CTR_EXT_CORE | CPUID_PERF_CTR_EXT_NB |
				  CPUID_PERF_TSC | CPUID_PERF_CTR_EXT_LLC);
		if (pmu->state.model == PMU_AMD_CORE)
			registers[2] |= CPUID_PERF_CTR_EXT_CORE;
		break;
	case 0xa:        /* Intel */
	case 0x23:       /* Intel */
	case 0x8000001b: /* IBS */
	case 0x80000022: /* PerfMonV2 */
		for (unsigned int i = 0; i < 4; i++)
			registers[i] = 0;
		break;
	default:
		break;
	}
}

static bool amd_read_msr(const struct pmu_state *state, uint32_t index, uint64_t *value)
{
	bool is_select;
	const int i = find_register(state, index, &is_select);

	if (i < 0)
		return false;
	*value = is_select ? state->select[i] : state->general[i];
	return true;
}

static bool amd_write_msr(struct pmu_state *state, uint32_t index, uint64_t value)
{
	bool is_select;
	const int i = find_register(state, index, &is_select);

	if (i < 0)
		return false;
	if (is_select)
		state->select[i] = value & SELECT_WRITABLE;
	else
		state->general[i] = value & PMU_COUNTER_MASK;
	return true;
}

/* RDPMC, APM vol. 3: higher indices are northbridge and cache counters, which this PMU does not
 * have. */
static bool amd_read_counter(const struct pmu_state *state, uint32_t index, uint64_t *value)
{
	if (index >= counters_of(state))
		return false;
	*value = state->general[index];
	return true;
}

static const struct pmu_event *find_event(const struct pmu_state *state, uint64_t select)
{
	const struct pmu_event *event = pmu_event_find(amd_events, AMD_EVENTS, select);

	if (event && event->unit == PMU_REFERENCE_CYCLES && state->model == PMU_AMD_LEGACY)
		return &legacy_reference;
	return event;
}

static struct pmu_counting amd_general(const struct pmu_state *state, unsigned int i)
{
	const uint64_t select = state->select[i];

	return (struct pmu_counting){ .on = select & SELECT_ENABLE,
				      .select = select,
				      .event = find_event(state, select) };
}

static struct pmu_counting amd_fixed(const struct pmu_state *state, unsigned int i)
{
	return (struct pmu_counting){ .fixed = true };
}

const struct pmu_vendor pmu_amd = {
	.reset = amd_reset,
	.writable = amd_writable,
	.cpuid = amd_cpuid,
	.read_msr = amd_read_msr,
	.write_msr = amd_write_msr,
	.read_counter = amd_read_counter,
	.general = amd_general,
	.fixed = amd_fixed,
};
