/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kicks the vCPU whose thread made it when that has used so much CPU time. It
 * does not wake a vCPU that waits in HLT. Exact to 10 us and the delivery of a signal by
 * perf's cpu-clock, an hrtimer (kernel/events/core.c); where the host lets us have no
 * perf event, to one tick of the host's scheduler by a POSIX timer (1 to 10 ms, timer_create(2)).
 *
 * All functions are for the thread that made it; pmu_timer_close() also for another one.
 */
#ifndef KVMSCOPE_PMU_PMU_TIMER_H
#define KVMSCOPE_PMU_PMU_TIMER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct pmu_timer {
	int event;     /* cpu-clock; -1 without */
	timer_t timer; /* without */
	bool armed;
	uint64_t deadline; /* of the thread's CPU time, ns; while armed */
};

/* CPU time in ns of the calling thread: a system call. */
uint64_t pmu_thread_time(void);

/* Not armed. The errors of timer_create(). */
int pmu_timer_open(struct pmu_timer *timer);
void pmu_timer_close(struct pmu_timer *timer);

/*
 * The kick comes at DEADLINE, NOW being pmu_thread_time(); both in ns. It may come again
 * from then on, until another one is armed or none.
 */
int pmu_timer_arm(struct pmu_timer *timer, uint64_t now, uint64_t deadline);
int pmu_timer_disarm(struct pmu_timer *timer);

#endif
