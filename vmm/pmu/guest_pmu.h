/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's performance counters: their registers, what they count, when they
 * overflow. Pure functions of one vCPU's state; no KVM, no clock of its own.
 *
 * Intel: architectural performance monitoring, version 2 (SDM vol. 3B 20.2.2)
 * with full-width writes. AMD: the four counters that all processors have, in
 * 0xC0010000 and on, or with PerfCtrExtCore the six in 0xC0010200 and on, the
 * first four of which are the same as those (APM vol. 2 13.2.1).
 *
 * What is counted comes from counters of the host's (struct pmu_counters), or
 * where they do not count it from the time for which the guest has run: core
 * cycles, reference cycles and bus cycles, at constant frequencies. Any other
 * event stands still: it is marked unavailable in CPUID where CPUID can say so,
 * and told of when the guest switches it on. To the time, one privilege level
 * alone (OS without USR or the reverse) is such an event too, since it does not
 * tell in which the guest was, and whatever counts something else than each
 * cycle: edges, CMASK, INV.
 *
 * All functions are for the thread of the vCPU, or while that stands still. So is what
 * is called back; another vCPU's may be at the same time.
 */
#ifndef KVMSCOPE_PMU_GUEST_PMU_H
#define KVMSCOPE_PMU_GUEST_PMU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pmu_model {
	PMU_INTEL = 1,
	PMU_AMD_LEGACY = 2,
	PMU_AMD_CORE = 3,
};

#define PMU_WIDTH       48 /* bits of each counter */
#define PMU_GENERAL_MAX 6
#define PMU_FIXED_MAX   3

/* The guest's frequencies in Hz, each 1 to PMU_HZ_MAX. */
#define PMU_HZ_MAX (UINT64_C(1) << 40)
struct pmu_clock {
	uint64_t core;      /* taken as constant while the guest runs */
	uint64_t reference; /* of the TSC: CPU_CLK_UNHALTED.REF_TSC (SDM vol. 3B 20.2.2), PMCx120 of
			       AMD */
	uint64_t bus;       /* of the crystal, which event 3CH umask 01H counts */
};

/* All of a vCPU's PMU. Nothing in it points anywhere: it can be copied and written to a file. */
struct pmu_state {
	uint32_t size;  /* sizeof(struct pmu_state) */
	uint32_t model; /* enum pmu_model */
	struct pmu_clock clock;
	uint64_t time; /* ns the guest has run; the counters are as they were then */
	uint64_t select[PMU_GENERAL_MAX];
	uint64_t general[PMU_GENERAL_MAX]; /* PMU_WIDTH bits, as the next one */
	uint64_t fixed[PMU_FIXED_MAX];
	uint64_t fixed_control;
	uint64_t global_control, global_status;
	uint64_t freeze_on_pmi; /* 0 or 1 */
};

#define PMU_TOLD_MAX 16

/* The events that were told of; a guest that goes through all there are fills no log. */
struct pmu_told {
	_Atomic uint64_t keys[PMU_TOLD_MAX]; /* from the first one on; 0: none */
	atomic_bool full;                    /* and that was told */
};

/*
 * Told once of each event that the guest has switched on and that stands
 * still. EVENT is its name, valid during the call; NULL when there were
 * PMU_TOLD_MAX: of more of them nothing is told. CONTEXT is the PMU's.
 */
typedef void pmu_unavailable(void *context, const char *event);

/* What one counter is to count; nothing, if neither for user nor for kernel mode. */
struct pmu_request {
	/* Event, unit mask, EDGE, INV and CMASK, where they are in a select of the model. */
	uint64_t config;
	bool user, kernel; /* of the guest */
	bool interrupt;    /* its overflow makes a PMI */
};

/* Counters: the general ones, then the fixed ones. */
#define PMU_COUNTERS (PMU_GENERAL_MAX + PMU_FIXED_MAX)

/*
 * Counters of the host's for those of the guest (pmu_host.h). Only events that
 * the model's table knows are asked for.
 */
struct pmu_counters {
	/* Can they count CONFIG, as in struct pmu_request? Any thread. */
	bool (*has)(void *context, uint64_t config);
	/*
	 * Counter NUMBER counts REQUEST from now on. If that has a PMI, the vCPU is kicked
	 * when it has counted LEFT (1 to 2^PMU_WIDTH). It may be asked for what it counts
	 * already. False, and NUMBER counts nothing, if it can not, and if nothing is
	 * requested. On the vCPU's thread; if nothing is requested, also before it runs.
	 */
	bool (*set)(void *context, unsigned int number, const struct pmu_request *request,
		    uint64_t left);
	/* What NUMBER has counted since the last call. On the vCPU's thread. */
	uint64_t (*take)(void *context, unsigned int number);
	void *context;
};

struct pmu {
	struct pmu_state state;
	pmu_unavailable *unavailable; /* or NULL */
	void *context;
	const struct pmu_counters *counters; /* or NULL */
	bool backed[PMU_COUNTERS];           /* those that they count now */
	struct pmu_told told;
	struct pmu_told *told_of_all; /* NULL: of this PMU alone */
};

/*
 * A PMU as after power-up, at guest time 0. UNAVAILABLE may be NULL. 0, or
 * -EINVAL for a frequency out of range or no such model.
 */
int pmu_init(struct pmu *pmu, enum pmu_model model, const struct pmu_clock *clock,
	     pmu_unavailable *unavailable, void *context);

/*
 * From now on COUNTERS count what they can, and the time what they can not. NULL:
 * the time alone. Not copied: they have to live as long.
 */
void pmu_set_counters(struct pmu *pmu, const struct pmu_counters *counters);

/* What FIRST, a PMU of the same guest, tells of, PMU does not tell again. FIRST lives as long. */
void pmu_tell_with(struct pmu *pmu, struct pmu *first);

/*
 * The registers as after RESET (SDM vol. 3A table 10-1; an INIT leaves them
 * as they are). The guest's time goes on.
 */
void pmu_reset(struct pmu *pmu);

/*
 * Makes PMU what SAVED was: SIZE bytes that were a struct pmu_state, of the
 * same model. Its clock and time are taken too, so the guest's time has to go on
 * from there. SAVED may come from anywhere: -EINVAL, with PMU left as it is, if no
 * guest can have brought a PMU into that state. To save, advance and copy .state.
 */
int pmu_restore(struct pmu *pmu, const void *saved, size_t size);

/*
 * Changes what CPUID leaf FUNCTION, subleaf INDEX shows, REGISTERS being EAX,
 * EBX, ECX, EDX, into what this PMU is. Other leaves are left alone.
 */
void pmu_cpuid(const struct pmu *pmu, uint32_t function, uint32_t index, uint32_t registers[4]);

/*
 * RDMSR, WRMSR and RDPMC, of the counters as they were at state.time: advance
 * first. False means #GP(0), with nothing changed. RDPMC's own condition,
 * CR4.PCE or CPL 0, is for the caller to check. Reserved bits of Intel's fault;
 * those of AMD's are ignored and read as 0, as the processors do it (Linux,
 * arch/x86/kvm/pmu.c, kvm_pmu_set_msr()).
 */
bool pmu_read_msr(const struct pmu *pmu, uint32_t index, uint64_t *value);
bool pmu_write_msr(struct pmu *pmu, uint32_t index, uint64_t value);
bool pmu_read_counter(const struct pmu *pmu, uint32_t index, uint64_t *value);

/*
 * IA32_DEBUGCTL.Freeze_PerfMon_On_PMI (bit 12), which is in a register that is
 * not the PMU's: then a PMI clears IA32_PERF_GLOBAL_CTRL (SDM vol. 3B,
 * "Freezing LBR and Performance Counters on PMI", legacy behaviour), at the
 * very time of the overflow if that is told by the time, else when the vCPU has been left
 * for it. AMD's have nothing like it: there it changes nothing.
 */
void pmu_set_freeze_on_pmi(struct pmu *pmu, bool freeze);

/*
 * Counts up to TIME, ns for which the guest has run, not less than
 * state.time. True if a PMI is due: LVTPC is for the caller to look at.
 */
bool pmu_advance(struct pmu *pmu, uint64_t time);

/* Does any counter count, so that pmu_advance() does more than to take TIME over? */
bool pmu_is_counting(const struct pmu *pmu);

#define PMU_NEVER UINT64_MAX

/*
 * The first time at which pmu_advance() will return true if the guest writes
 * no register until then, or PMU_NEVER. For what the host's
 * counters count it is they that kick.
 */
uint64_t pmu_next_overflow(const struct pmu *pmu);

#endif
