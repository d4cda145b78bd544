/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's run time for its PMU: time in KVM_RUN during which the vCPU's thread had a CPU
 * (cpu_clock.h). Host work in that time counts, both for the guest (page tables, timers) and for
 * the host (interrupts), because that time passes in the guest and is not reported as stolen.
 * Waiting in HLT or for a CPU does not count, nor does the handling of exits: all counters stop
 * between leave and enter.
 *
 * It costs no system call while nothing counts, otherwise two per exit and one for each new
 * overflow time.
 *
 * All functions are for the vCPU's thread; pmu_time_close() also for another one after that has
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
	bool counting;       /* by the registers at their last change */
	bool running;        /* since entered */
	uint64_t entered;    /* cpu_clock_now() */
	uint64_t guest_time; /* ns, as in pmu_state.time */
	uint64_t overflow;   /* guest_time of the next PMI, as of entered; or PMU_NEVER */
	bool open;           /* clock and timer are open: from the first counting on */
	struct cpu_clock clock;
	struct pmu_timer timer;
	bool armed;        /* the timer is, with the next two members */
	uint64_t deadline; /* cpu_clock_now() */
	uint32_t kicks;    /* number of kicks when it was armed */
};

/* Continues from PMU's time. */
void pmu_time_open(struct pmu_time *self, const struct pmu *pmu);
void pmu_time_close(struct pmu_time *self);

/*
 * Before the guest runs. Arranges for a kick at pmu_next_overflow(), or a little later (see
 * pmu_timer.h). KICKS is the vCPU's number of kicks (struct vcpu). The errors of pmu_timer_open()
 * and pmu_timer_arm().
 */
int pmu_time_enter(struct pmu_time *self, const struct pmu *pmu, uint32_t kicks);
/* After the guest ran: pmu_advance(). True if a PMI is due; LATE is then the run time in ns
 * since the overflow, or 0 for an overflow that perf reported. */
bool pmu_time_leave(struct pmu_time *self, struct pmu *pmu, uint64_t *late);
/* The registers have changed since leave: by a guest's write, a reset or a restore. */
void pmu_time_changed(struct pmu_time *self, const struct pmu *pmu);

#endif
