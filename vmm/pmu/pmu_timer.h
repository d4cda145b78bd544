/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kicks the vCPU whose thread made it when that has had a CPU for so long. It
 * does not wake a vCPU that waits in HLT. By perf's cpu-clock, an hrtimer that runs while the
 * thread has a CPU (kernel/events/core.c, perf_swevent_start_hrtimer()); where
 * the host lets us have no such event, by a POSIX timer of the thread's CPU time.
 *
 * There is one kick and no more until it is armed anew. It is a hint, to be followed by a look at
 *the time (cpu_clock.h):
 *
 *	early	by as much as that clock and the hrtimer's, CLOCK_MONOTONIC, which NTP
 *		slews, run apart
 *	late	by the delivery of a signal; the POSIX timer by up to a tick of the host's scheduler
 *		(1 to 10 ms, timer_create(2)), and by what is no CPU time to it (cpu_clock.h)
 *
 * All functions are for the thread that made it; pmu_timer_close() also for another one.
 */
#ifndef KVMSCOPE_PMU_PMU_TIMER_H
#define KVMSCOPE_PMU_PMU_TIMER_H

#include <stdint.h>
#include <time.h>

/* ns; a shorter wait is as long as this one. */
#define PMU_TIMER_MIN 10000ull

struct pmu_timer {
	int event;     /* cpu-clock; -1 without */
	timer_t timer; /* without */
};

/* Not armed. The errors of timer_create(). */
int pmu_timer_open(struct pmu_timer *timer);
void pmu_timer_close(struct pmu_timer *timer);

/* From now on the kick comes after WAIT ns on a CPU, and none for what it was armed for before. */
int pmu_timer_arm(struct pmu_timer *timer, uint64_t wait);
int pmu_timer_disarm(struct pmu_timer *timer);

#endif
