/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's performance counters: registers, events, overflows. Pure functions of one vCPU's state,
 * without KVM and without a clock.
 *
 * Intel: architectural performance monitoring, version 2 (SDM vol. 3B 20.2.2) with full-width
 * writes. AMD: the four counters of all processors at 0xC0010000, or with PerfCtrExtCore the six at
 * 0xC0010200, the first four of which are aliases of them (APM vol. 2 13.2.1).
 *
 * Events are counted by the host's counters (struct pmu_counters). Core, reference and bus cycles
 * that the host does not count are derived from the guest's run time, at constant frequencies.
 * Counters of all other events do not advance: CPUID marks them unavailable if it can, and they are
 * reported when the guest enables them. For derived cycles this includes events at one privilege
 * level only (OS without USR or the reverse), and EDGE, CMASK and INV, which run time cannot
 * distinguish.
 *
 * All functions are for the vCPU's thread, or for another one while the vCPU does not run.
 * Callbacks run on the same thread, for several vCPUs at the same time.
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
	uint64_t core;      /* assumed constant while the guest runs */
	uint64_t reference; /* of the TSC: CPU_CLK_UNHALTED.REF_TSC (SDM vol. 3B 20.2.2), PMCx120 of
			       AMD */
	uint64_t bus;       /* of the crystal, counted by event 3CH umask 01H */
};

/* All state of a vCPU's PMU. It has no pointers, so it can be copied and written to a file. */
struct pmu_state {
	uint32_t size;  /* sizeof(struct pmu_state) */
	uint32_t model; /* enum pmu_model */
	struct pmu_clock clock;
	uint64_t time; /* ns of guest run time at which the counters have these values */
	uint64_t select[PMU_GENERAL_MAX];
	uint64_t general[PMU_GENERAL_MAX]; /* PMU_WIDTH bits, as are fixed[] */
	uint64_t fixed[PMU_FIXED_MAX];
	uint64_t fixed_control;
	uint64_t global_control, global_status;
	uint64_t freeze_on_pmi; /* 0 or 1 */
};

#define PMU_REPORTED_MAX 16

/* Unavailable events that were reported; bounded, so that a guest cannot flood the log. */
struct pmu_reported {
	_Atomic uint64_t keys[PMU_REPORTED_MAX]; /* filled from the first one; 0: free */
	atomic_bool full;                        /* and that was reported */
};

/*
 * Called once for each event that the guest has enabled and that does not advance. EVENT is its
 * name, valid during the call, or NULL once, when PMU_REPORTED_MAX events have been reported and no
 * more will be. CONTEXT is the PMU's.
 */
typedef void pmu_unavailable(void *context, const char *event);

/* What one counter should count; nothing if neither user nor kernel mode is set. */
struct pmu_request {
	/* Event, unit mask, EDGE, INV and CMASK, at their place in the model's event select. */
	uint64_t config;
	bool user, kernel; /* modes of the guest */
	bool interrupt;    /* its overflow raises a PMI */
};

/* Number of counters: first the general, then the fixed ones. */
#define PMU_COUNTERS (PMU_GENERAL_MAX + PMU_FIXED_MAX)

/* Counters of the host (pmu_host.h). Only events in the model's table are requested. */
struct pmu_counters {
	/* True if CONFIG, as in struct pmu_request, can be counted. Any thread. */
	bool (*has)(void *context, uint64_t config);
	/*
	 * Lets counter NUMBER count REQUEST; may repeat the current request. If its overflow raises
	 * a PMI, the vCPU is kicked after LEFT counts (1 to 2^PMU_WIDTH). False, with NUMBER
	 * stopped, if it cannot be counted or nothing is requested. On the vCPU's thread; if
	 * nothing is requested, also before the vCPU runs.
	 */
	bool (*set)(void *context, unsigned int number, const struct pmu_request *request,
		    uint64_t left);
	/* Count of NUMBER since the last call. On the vCPU's thread. */
	uint64_t (*consume)(void *context, unsigned int number);
	void *context;
};

struct pmu {
	struct pmu_state state;
	pmu_unavailable *unavailable; /* or NULL */
	void *context;
	const struct pmu_counters *counters; /* or NULL */
	bool backed[PMU_COUNTERS];           /* counted by the host's counters */
	struct pmu_reported reported;
	struct pmu_reported *shared_reported; /* NULL: own reports only */
};

/* A PMU as after power-up, at guest time 0. UNAVAILABLE may be NULL. 0, or -EINVAL for a
 * frequency out of range or an unknown model. */
int pmu_init(struct pmu *pmu, enum pmu_model model, const struct pmu_clock *clock,
	     pmu_unavailable *unavailable, void *context);

/* COUNTERS count whatever they can from now on; the rest is derived from run time. NULL:
 * everything is derived. Not copied: they must outlive the PMU. */
void pmu_set_counters(struct pmu *pmu, const struct pmu_counters *counters);

/* PMU does not report events that FIRST, a PMU of the same guest, has reported. FIRST outlives
 * PMU. */
void pmu_share_reports(struct pmu *pmu, struct pmu *first);

/* Resets the registers as RESET does (SDM vol. 3A table 10-1; INIT does not change them). The
 * guest's run time continues. */
void pmu_reset(struct pmu *pmu);

/*
 * Restores SAVED: SIZE bytes of a struct pmu_state of the same model, with its clock and run time,
 * from which the caller continues. SAVED is not trusted: -EINVAL, with PMU unchanged, for a state
 * that no guest can reach. To save a state, advance and copy .state.
 */
int pmu_restore(struct pmu *pmu, const void *saved, size_t size);

/* Changes the registers EAX, EBX, ECX and EDX of CPUID leaf FUNCTION, subleaf INDEX, to describe
 * this PMU. Other leaves are not changed. */
void pmu_cpuid(const struct pmu *pmu, uint32_t function, uint32_t index, uint32_t registers[4]);

/*
 * RDMSR, WRMSR and RDPMC with the counters at state.time: advance first. False: #GP(0), and nothing
 * has changed. The caller checks RDPMC's own condition, CR4.PCE or CPL 0. Reserved bits fault on
 * Intel; on AMD they are ignored and read as 0, as on the processors (Linux, arch/x86/kvm/pmu.c,
 * kvm_pmu_set_msr()).
 */
bool pmu_read_msr(const struct pmu *pmu, uint32_t index, uint64_t *value);
bool pmu_write_msr(struct pmu *pmu, uint32_t index, uint64_t value);
bool pmu_read_counter(const struct pmu *pmu, uint32_t index, uint64_t *value);

/*
 * IA32_DEBUGCTL.Freeze_PerfMon_On_PMI (bit 12), which is not in a register of the PMU: a PMI then
 * clears IA32_PERF_GLOBAL_CTRL (SDM vol. 3B, "Freezing LBR and Performance Counters on PMI", legacy
 * behaviour). For derived cycles that happens exactly at the overflow, otherwise when the vCPU is
 * left for it. No effect on AMD, which has no such bit.
 */
void pmu_set_freeze_on_pmi(struct pmu *pmu, bool freeze);

/* Counts up to TIME, ns of guest run time, at least state.time. True if a PMI is due; the caller
 * checks LVTPC. */
bool pmu_advance(struct pmu *pmu, uint64_t time);

/* True if any counter counts, so that pmu_advance() has more to do than to store TIME. */
bool pmu_is_counting(const struct pmu *pmu);

#define PMU_NEVER UINT64_MAX

/* The first time at which pmu_advance() will return true if the guest writes no register before,
 * or PMU_NEVER. Counters of the host are not included: they kick the vCPU themselves. */
uint64_t pmu_next_overflow(const struct pmu *pmu);

#endif
