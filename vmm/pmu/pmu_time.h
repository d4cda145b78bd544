/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time for which a guest has run, as a PMU counts it: time in KVM_RUN for which the vCPU's
 * thread had a CPU (cpu_clock.h). What the host does meanwhile counts, be it for
 * the guest (page tables, timers) or for itself (interrupts): the guest, which sees it pass, is
 * told of none of it. Waiting in HLT and for a CPU of the host do not count, nor does what we do
 * when KVM_RUN was left. So between leave and enter all counters stand still.
 *
 * While nothing is counted it costs no system call; else two for each time that the guest is
 * left, and one for each new time of an overflow.
 *
 * All functions are for the vCPU's thread; pmu_time_close() also for another one once that has
 * ended.
 */
#ifndef KVMSCOPE_PMU_PMU_TIME_H
#define KVMSCOPE_PMU_PMU_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/pmu/cpu_clock.h"
#include "vmm/pmu/guest_pmu.h"
#include "vmm/pmu/pmu_timer.h"

struct pmu_time {
	bool counting;       /* by the registers as they were at the last change */
	bool running;        /* since entered */
	uint64_t entered;    /* by the clock */
	uint64_t guest_time; /* ns, as pmu_state.time */
	uint64_t overflow;   /* the next that has a PMI, by the same, as of entered; PMU_NEVER */
	bool open;           /* clock and timer are: from when something was first counted */
	struct cpu_clock clock;
	struct pmu_timer timer;
	bool armed;        /* the timer, for what follows */
	uint64_t deadline; /* by the clock */
	uint32_t kicks;    /* as they were then */
};

/* Goes on from PMU's time. */
void pmu_time_open(struct pmu_time *self, const struct pmu *pmu);
void pmu_time_close(struct pmu_time *self);

/*
 * The guest is about to run. Sees to it that the vCPU is kicked at pmu_next_overflow(),
 * not much later (see pmu_timer.h). KICKS is how many the vCPU has had (struct vcpu). The errors of
 * pmu_timer_open() and pmu_timer_arm().
 */
int pmu_time_enter(struct pmu_time *self, const struct pmu *pmu, uint32_t kicks);
/*
 * The guest has run: pmu_advance(). True if a PMI is due; LATE is then for how long, in ns, the
 * guest has run since the overflow, 0 if perf told of it.
 */
bool pmu_time_leave(struct pmu_time *self, struct pmu *pmu, uint64_t *late);
/* The registers are not what they were at leave: the guest wrote one, or a reset or restore did. */
void pmu_time_changed(struct pmu_time *self, const struct pmu *pmu);

#endif
