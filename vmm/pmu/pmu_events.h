/* SPDX-License-Identifier: Apache-2.0 */
/* For vmm/pmu alone: what a counter counts as its registers are, by vendor. */
#ifndef KVMSCOPE_PMU_PMU_EVENTS_H
#define KVMSCOPE_PMU_PMU_EVENTS_H

#include "vmm/pmu/guest_pmu.h"

#define PMU_COUNTER_MASK ((UINT64_C(1) << PMU_WIDTH) - 1)

/* Is INDEX one of COUNT from FIRST on? */
static inline bool pmu_in(uint32_t index, uint32_t first, uint32_t count)
{
	return index >= first && index - first < count;
}

/* PerfEvtSel of both vendors (SDM vol. 3B 20.2.1.1, APM vol. 2 13.2.1) */
#define SELECT_EVENT     UINT64_C(0xff)
#define SELECT_UMASK     UINT64_C(0xff00)
#define SELECT_USR       (UINT64_C(1) << 16)
#define SELECT_OS        (UINT64_C(1) << 17)
#define SELECT_EDGE      (UINT64_C(1) << 18)
#define SELECT_INTERRUPT (UINT64_C(1) << 20)
#define SELECT_ENABLE    (UINT64_C(1) << 22)
#define SELECT_INVERT    (UINT64_C(1) << 23)
#define SELECT_CMASK     UINT64_C(0xff000000)

/* AMD's event has four bits more (APM vol. 2 13.2.1); Intel's are reserved there, so 0. */
#define SELECT_EVENT_HIGH (UINT64_C(0xf) << 32)
/* What of a select says what is counted, beside the privilege level. */
#define SELECT_CONFIG                                                                              \
	(SELECT_EVENT_HIGH | SELECT_CMASK | SELECT_INVERT | SELECT_EDGE | SELECT_UMASK |           \
	 SELECT_EVENT)

/* EVENT and UMASK, in their places. */
static inline uint64_t pmu_select_of(uint16_t event, uint8_t umask)
{
	return (event & SELECT_EVENT) | (uint64_t)umask << 8 |
	       ((uint64_t)event << 24 & SELECT_EVENT_HIGH);
}

/* What the time for which the guest has run stands for. */
enum pmu_unit {
	PMU_NOTHING,
	PMU_CORE_CYCLES,
	PMU_REFERENCE_CYCLES,
	PMU_BUS_CYCLES,
};

struct pmu_event {
	uint16_t event;
	uint8_t umask;
	enum pmu_unit unit;
	const char *name;
};

/* A counter as its registers are now. */
struct pmu_counting {
	bool on;         /* all its switches are */
	bool fixed;      /* a counter of one event; select has it too */
	uint64_t select; /* as of a general counter */
	const struct pmu_event
		*event;  /* NULL: none of those that are known, which are those allowed */
	uint64_t status; /* the bit that its overflow sets */
};

/* SELECT's event in EVENTS, COUNT of them; or NULL. */
const struct pmu_event *pmu_event_find(const struct pmu_event *events, unsigned int count,
				       uint64_t select);

/* What of COUNTING's the time tells. */
enum pmu_unit pmu_counting_unit(const struct pmu_counting *counting);

/* Tells once of counter NUMBER, that its COUNTING stands still. */
void pmu_tell_counting(struct pmu *pmu, unsigned int number, const struct pmu_counting *counting);

/* Have the host's counters, if there are any, EVENT? */
bool pmu_counters_have(const struct pmu *pmu, const struct pmu_event *event);

/* The bit in CPUID.0AH:EBX of Intel's architectural event CONFIG; -1 if it is none. */
int pmu_intel_architectural(uint64_t config);

/* What differs from vendor to vendor; each as its namesake in guest_pmu.h. */
struct pmu_vendor {
	void (*reset)(struct pmu_state *state); /* all registers are 0 before */
	void (*writable)(
		struct pmu_state *state); /* sets all bits of registers that can ever be set */
	void (*cpuid)(const struct pmu *pmu, uint32_t function, uint32_t index,
		      uint32_t registers[4]);
	bool (*read_msr)(const struct pmu_state *state, uint32_t index, uint64_t *value);
	bool (*write_msr)(struct pmu_state *state, uint32_t index, uint64_t value);
	bool (*read_counter)(const struct pmu_state *state, uint32_t index, uint64_t *value);
	struct pmu_counting (*general)(const struct pmu_state *state, unsigned int i);
	struct pmu_counting (*fixed)(const struct pmu_state *state, unsigned int i);
};

extern const struct pmu_vendor pmu_intel, pmu_amd;

#endif
