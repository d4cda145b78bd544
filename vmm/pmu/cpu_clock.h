/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time for which a thread had a CPU: from when the host's scheduler assigned one until it took
 * it away, by the host's clock, as perf's cpu-clock event counts it (kernel/events/core.c,
 * cpu_clock_event_update()). A guest sees this time pass while its vCPU runs; time without a CPU is
 * reported to it as steal time (arch/x86/kvm/x86.c, record_steal_time()).
 *
 * CLOCK_THREAD_CPUTIME_ID is slower: it excludes interrupt time (CONFIG_IRQ_TIME_ACCOUNTING) and
 * time stolen from a host that is itself a guest (CONFIG_PARAVIRT_TIME_ACCOUNTING;
 * kernel/sched/core.c, update_rq_clock_task()). It is the fallback if no perf event can be opened,
 * as with kernel.perf_event_paranoid 3.
 *
 * All functions are for the thread that opened the clock; cpu_clock_close() also for another one.
 */
#ifndef KVMSCOPE_PMU_CPU_CLOCK_H
#define KVMSCOPE_PMU_CPU_CLOCK_H

#include <stdint.h>

struct cpu_clock {
	int event; /* -1: CLOCK_THREAD_CPUTIME_ID */
};

/* Cannot fail. Logs (debug) if the clock is CLOCK_THREAD_CPUTIME_ID. */
void cpu_clock_open(struct cpu_clock *clock);
void cpu_clock_close(struct cpu_clock *clock);

/* ns from an arbitrary start, never decreasing. A system call. */
uint64_t cpu_clock_now(const struct cpu_clock *clock);

#endif
