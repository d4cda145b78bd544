/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to vmm/pmu: what a counter counts according to its registers, for each vendor. */
#ifndef KVMSCOPE_PMU_PMU_EVENTS_H
#define KVMSCOPE_PMU_PMU_EVENTS_H

#include "vmm/pmu/guest_pmu.h"

#define PMU_COUNTER_MASK ((UINT64_C(1) << PMU_WIDTH) - 1)

/* True if INDEX is one of COUNT indices from FIRST. */
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

/* AMD's event has four more bits (APM vol. 2 13.2.1); Intel reserves them, so they are 0. */
#define SELECT_EVENT_HIGH (UINT64_C(0xf) << 32)
/* The bits of a select that define the event, without the privilege level. */
#define SELECT_CONFIG                                                                              \
	(SELECT_EVENT_HIGH | SELECT_CMASK | SELECT_INVERT | SELECT_EDGE | SELECT_UMASK |           \
	 SELECT_EVENT)

/* EVENT and UMASK at their place in a select. */
static inline uint64_t pmu_select_of(uint16_t event, uint8_t umask)
{
	return (event & SELECT_EVENT) | (uint64_t)umask << 8 |
	       ((uint64_t)event << 24 & SELECT_EVENT_HIGH);
}

/* The unit of the guest's run time. */
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

/* A counter as its registers define it now. */
struct pmu_counting {
	bool on;                       /* all its enable bits are set */
	bool fixed;                    /* a counter of one event; select has that event too */
	uint64_t select;               /* in the format of a general counter */
	const struct pmu_event *event; /* NULL: unknown, therefore not allowed */
	uint64_t status;               /* the bit set by its overflow */
};

/* The entry of SELECT's event in EVENTS, which has COUNT entries, or NULL. */
const struct pmu_event *pmu_event_find(const struct pmu_event *events, unsigned int count,
				       uint64_t select);

/* The unit if COUNTING can be derived from run time, else PMU_NOTHING. */
enum pmu_unit pmu_counting_unit(const struct pmu_counting *counting);

/* Reports once that COUNTING, of counter NUMBER, does not advance. */
void pmu_report_unavailable(struct pmu *pmu, unsigned int number,
			    const struct pmu_counting *counting);

/* True if the host has counters and they have EVENT. */
bool pmu_counters_have(const struct pmu *pmu, const struct pmu_event *event);

/* The bit of Intel's architectural event CONFIG in CPUID.0AH:EBX; -1 if it is not architectural. */
int pmu_intel_architectural(uint64_t config);

/* The vendors' differences; see the functions of the same name in guest_pmu.h. */
struct pmu_vendor {
	void (*reset)(struct pmu_state *state);    /* all registers are 0 before */
	void (*writable)(struct pmu_state *state); /* sets all register bits that can ever be set */
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
