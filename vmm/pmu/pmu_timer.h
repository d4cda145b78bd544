/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kicks the vCPU whose thread opened it after that thread had a CPU for a given time. It does not
 * wake a vCPU that waits in HLT. Uses perf's cpu-clock, an hrtimer that runs while the thread has a
 * CPU (kernel/events/core.c, perf_swevent_start_hrtimer()); if no such event can be opened, a POSIX
 * timer of the thread's CPU time.
 *
 * There is one kick each time it is armed. The kick is only a hint to read the time (cpu_clock.h):
 *	early	by the difference between that clock and the hrtimer's, CLOCK_MONOTONIC, which NTP
 *		slews
 *	late	by the delivery of a signal; the POSIX timer by up to a scheduler tick (1 to 10 ms,
 *		timer_create(2)), and by what is not CPU time to it (cpu_clock.h)
 *
 * All functions are for the thread that opened it; pmu_timer_close() also for another one.
 */
#ifndef KVMSCOPE_PMU_PMU_TIMER_H
#define KVMSCOPE_PMU_PMU_TIMER_H

#include <stdint.h>
#include <time.h>

/* ns; shorter waits are extended to it */
#define PMU_TIMER_MIN 10000ull

struct pmu_timer {
	int event;     /* cpu-clock; -1 without */
	timer_t timer; /* used without event */
};

/* Not armed. The errors of timer_create(). */
int pmu_timer_open(struct pmu_timer *timer);
void pmu_timer_close(struct pmu_timer *timer);

/* Arms it for a kick after WAIT ns on a CPU, and cancels the previous one. */
int pmu_timer_arm(struct pmu_timer *timer, uint64_t wait);
int pmu_timer_disarm(struct pmu_timer *timer);

#endif
