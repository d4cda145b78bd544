/* SPDX-License-Identifier: Apache-2.0 */
/* Intel's architectural performance monitoring, version 2. Sections are those of the SDM vol.
 * 3B, chapter 20; MSRs are in vol. 4, table 2-2. */
#include <stddef.h>

#include "vmm/pmu/pmu_events.h"

#define INTEL_GENERAL 4
#define INTEL_FIXED   3

#define MSR_PMC               0xc1
#define MSR_PERFEVTSEL        0x186
#define MSR_FIXED_CTR         0x309
#define MSR_PERF_CAPABILITIES 0x345
#define MSR_FIXED_CTR_CTRL    0x38d
#define MSR_GLOBAL_STATUS     0x38e
#define MSR_GLOBAL_CTRL       0x38f
#define MSR_GLOBAL_OVF_CTRL   0x390
#define MSR_A_PMC             0x4c1

#define CAPABILITIES_FW_WRITE (UINT64_C(1) << 13)

/* 20.2.2: bit i for a general counter, 32 + i for a fixed one; ClrOvfBuf and ClrCondChgd */
#define GENERAL_BIT(i)     (UINT64_C(1) << (i))
#define FIXED_BIT(i)       (UINT64_C(1) << (32 + (i)))
#define FIXED_COUNTERS     (FIXED_BIT(INTEL_FIXED) - FIXED_BIT(0))
#define GLOBAL_COUNTERS    ((GENERAL_BIT(INTEL_GENERAL) - 1) | FIXED_COUNTERS)
#define OVF_CTRL_CONDITION (UINT64_C(3) << 62)

/* 20.2.1.1; AnyThread (bit 21) exists from version 3. */
#define SELECT_RESERVED (UINT64_C(0xffffffff00000000) | UINT64_C(1) << 21)

/* 20.2.2: four bits for each fixed counter; their bit 2, AnyThread, exists from version 3. */
#define FIXED_OS        1u
#define FIXED_USR       2u
#define FIXED_INTERRUPT 8u
#define FIXED_WRITABLE  UINT64_C(0xbbb)

/* RDPMC, vol. 2B: ECX[31:16] is the type of the counter. */
#define RDPMC_FIXED 0x40000000u

/* 20.2.1.2, table 20-1, in the bit order of CPUID.0AH:EBX */
static const struct pmu_event architectural[] = {
	{ 0x3c, 0x00, PMU_CORE_CYCLES, "core cycles" },
	{ 0xc0, 0x00, PMU_NOTHING, "instructions" },
	{ 0x3c, 0x01, PMU_BUS_CYCLES, "bus cycles" },
	{ 0x2e, 0x4f, PMU_NOTHING, "last level cache references" },
	{ 0x2e, 0x41, PMU_NOTHING, "last level cache misses" },
	{ 0xc4, 0x00, PMU_NOTHING, "branches" },
	{ 0xc5, 0x00, PMU_NOTHING, "branch mispredictions" },
};
#define ARCHITECTURAL (sizeof(architectural) / sizeof(architectural[0]))

/*
 * 20.2.2, table 20-2. The last one has no event number: 0x00 with 0x03 is Linux's name for it
 * (arch/x86/events/intel/core.c, intel_fixed2_event_constraint), which no guest can select in a
 * general counter.
 */
static const struct pmu_event fixed_events[INTEL_FIXED] = {
	{ 0xc0, 0x00, PMU_NOTHING, "instructions" },
	{ 0x3c, 0x00, PMU_CORE_CYCLES, "core cycles" },
	{ 0x00, 0x03, PMU_REFERENCE_CYCLES, "reference cycles" },
};

static void intel_reset(struct pmu_state *state)
{
	/* Vol. 3A table 10-1: the general counters' bits are set, so that software for version 1
	 * finds them enabled. */
	state->global_control = GENERAL_BIT(INTEL_GENERAL) - 1;
}

static void intel_writable(struct pmu_state *state)
{
	for (unsigned int i = 0; i < INTEL_GENERAL; i++) {
		state->select[i] = ~SELECT_RESERVED;
		state->general[i] = PMU_COUNTER_MASK;
	}
	for (unsigned int i = 0; i < INTEL_FIXED; i++)
		state->fixed[i] = PMU_COUNTER_MASK;
	state->fixed_control = FIXED_WRITABLE;
	state->global_control = GLOBAL_COUNTERS;
	state->global_status = GLOBAL_COUNTERS;
	state->freeze_on_pmi = 1;
}

int pmu_intel_architectural(uint64_t config)
{
	const struct pmu_event *event = pmu_event_find(architectural, ARCHITECTURAL, config);

	return event ? (int)(event - architectural) : -1;
}

static uint32_t unavailable_events(const struct pmu *pmu)
{
	uint32_t bits = 0;

	for (unsigned int i = 0; i < ARCHITECTURAL; i++)
		if (architectural[i].unit == PMU_NOTHING &&
		    !pmu_counters_have(pmu, &architectural[i]))
			bits |= 1u << i;
	return bits;
}

static void intel_cpuid(const struct pmu *pmu, uint32_t function, uint32_t index,
			uint32_t registers[4])
{
	switch (function) {
	case 0x1: /* PDCM, which announces PERF_CAPABILITIES; no debug store (DTES64, DS-CPL, DS) */
		registers[2] = (registers[2] & ~(1u << 2 | 1u << 4)) | 1u << 15;
		registers[3] &= ~(1u << 21);
		break;
	case 0x7:
		if (index == 0) { /* no processor trace and no LBR, which also raise PMIs */
			registers[1] &= ~(1u << 25);
			registers[3] &= ~(1u << 19);
		}
		if (index == 1) /* no ArchPerfmonExt */
			registers[0] &= ~(1u << 8);
		break;
	case 0xa: /* 20.2.1.1, 20.2.2; vol. 2A, CPUID */
		registers[0] =
			2 | INTEL_GENERAL << 8 | PMU_WIDTH << 16 | (uint32_t)ARCHITECTURAL << 24;
		registers[1] = unavailable_events(pmu);
		registers[2] = 0;
		registers[3] = INTEL_FIXED | PMU_WIDTH << 5;
		break;
	case 0x14: /* processor trace */
	case 0x1c: /* LBR */
	case 0x23: /* ArchPerfmonExt */
		for (unsigned int i = 0; i < 4; i++)
			registers[i] = 0;
		break;
	default:
		break;
	}
}

static bool intel_read_msr(const struct pmu_state *state, uint32_t index, uint64_t *value)
{
	if (pmu_in(index, MSR_PMC, INTEL_GENERAL))
		*value = state->general[index - MSR_PMC];
	else if (pmu_in(index, MSR_A_PMC, INTEL_GENERAL))
		*value = state->general[index - MSR_A_PMC];
	else if (pmu_in(index, MSR_PERFEVTSEL, INTEL_GENERAL))
		*value = state->select[index - MSR_PERFEVTSEL];
	else if (pmu_in(index, MSR_FIXED_CTR, INTEL_FIXED))
		*value = state->fixed[index - MSR_FIXED_CTR];
	else if (index == MSR_PERF_CAPABILITIES)
		*value = CAPABILITIES_FW_WRITE;
	else if (index == MSR_FIXED_CTR_CTRL)
		*value = state->fixed_control;
	else if (index == MSR_GLOBAL_STATUS)
		*value = state->global_status;
	else if (index == MSR_GLOBAL_CTRL)
		*value = state->global_control;
	else if (index == MSR_GLOBAL_OVF_CTRL)
		*value = 0;
	else
		return false;
	return true;
}

/* False, for #GP, if VALUE has a reserved bit. */
static bool write_register(uint64_t *target, uint64_t value, uint64_t writable)
{
	if (value & ~writable)
		return false;
	*target = value;
	return true;
}

static bool write_overflow_control(struct pmu_state *state, uint64_t value)
{
	if (value & ~(GLOBAL_COUNTERS | OVF_CTRL_CONDITION))
		return false;
	state->global_status &= ~value;
	return true;
}

static bool intel_write_msr(struct pmu_state *state, uint32_t index, uint64_t value)
{
	/* "Full-Width Writes to Performance Counter Registers": bits beyond the width are
	 * reserved. At the counter's other address EDX is ignored, and bit 31 is sign-extended. */
	if (pmu_in(index, MSR_A_PMC, INTEL_GENERAL))
		return write_register(&state->general[index - MSR_A_PMC], value, PMU_COUNTER_MASK);
	if (pmu_in(index, MSR_PMC, INTEL_GENERAL))
		return write_register(&state->general[index - MSR_PMC],
				      (uint64_t)(int32_t)value & PMU_COUNTER_MASK,
				      PMU_COUNTER_MASK);
	if (pmu_in(index, MSR_PERFEVTSEL, INTEL_GENERAL))
		return write_register(&state->select[index - MSR_PERFEVTSEL], value,
				      ~SELECT_RESERVED);
	if (pmu_in(index, MSR_FIXED_CTR, INTEL_FIXED))
		return write_register(&state->fixed[index - MSR_FIXED_CTR], value,
				      PMU_COUNTER_MASK);
	if (index == MSR_FIXED_CTR_CTRL)
		return write_register(&state->fixed_control, value, FIXED_WRITABLE);
	if (index == MSR_GLOBAL_CTRL)
		return write_register(&state->global_control, value, GLOBAL_COUNTERS);
	if (index == MSR_GLOBAL_OVF_CTRL)
		return write_overflow_control(state, value);
	return false; /* PERF_CAPABILITIES and GLOBAL_STATUS are read-only */
}

static bool intel_read_counter(const struct pmu_state *state, uint32_t index, uint64_t *value)
{
	if (index < INTEL_GENERAL)
		*value = state->general[index];
	else if (pmu_in(index, RDPMC_FIXED, INTEL_FIXED))
		*value = state->fixed[index - RDPMC_FIXED];
	else
		return false;
	return true;
}

static struct pmu_counting intel_general(const struct pmu_state *state, unsigned int i)
{
	const uint64_t select = state->select[i];

	return (struct pmu_counting){ .on = (select & SELECT_ENABLE) &&
					    (state->global_control & GENERAL_BIT(i)),
				      .select = select,
				      .event = pmu_event_find(architectural, ARCHITECTURAL, select),
				      .status = GENERAL_BIT(i) };
}

/* Field FIELD of IA32_FIXED_CTR_CTRL, and EVENT, in the format of a general counter's select. */
static uint64_t fixed_select(unsigned int field, const struct pmu_event *event)
{
	return pmu_select_of(event->event, event->umask) | (field & FIXED_OS ? SELECT_OS : 0) |
	       (field & FIXED_USR ? SELECT_USR : 0) |
	       (field & FIXED_INTERRUPT ? SELECT_INTERRUPT : 0);
}

static struct pmu_counting intel_fixed(const struct pmu_state *state, unsigned int i)
{
	const unsigned int field = (unsigned int)(state->fixed_control >> 4 * i);

	return (struct pmu_counting){ .on = state->global_control & FIXED_BIT(i),
				      .fixed = true,
				      .select = fixed_select(field, &fixed_events[i]),
				      .event = &fixed_events[i],
				      .status = FIXED_BIT(i) };
}

const struct pmu_vendor pmu_intel = {
	.reset = intel_reset,
	.writable = intel_writable,
	.cpuid = intel_cpuid,
	.read_msr = intel_read_msr,
	.write_msr = intel_write_msr,
	.read_counter = intel_read_counter,
	.general = intel_general,
	.fixed = intel_fixed,
};
