/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For how long a thread has had a CPU: all the time from when the host's
 * scheduler gave it one to when it took it away, measured by the host's clock
 * and counted by perf's cpu-clock event (kernel/events/core.c, cpu_clock_event_update()).
 *
 * That is what a guest sees pass while its vCPU runs, and has not seen taken away: of a host
 * that leaves it without a CPU the guest is told as steal time (arch/x86/kvm/x86.c,
 * record_steal_time()). CLOCK_THREAD_CPUTIME_ID is less. Where the host's kernel accounts the time
 * of interrupts (CONFIG_IRQ_TIME_ACCOUNTING), or of what is stolen from a host that is a guest
 * itself (CONFIG_PARAVIRT_TIME_ACCOUNTING), that is taken off there (kernel/sched/core.c,
 * update_rq_clock_task()). It is the clock all the same where the host lets us have no perf event,
 * as by kernel.perf_event_paranoid of 3.
 *
 * All functions are for the thread that opened it; cpu_clock_close() also for another one.
 */
#ifndef KVMSCOPE_PMU_CPU_CLOCK_H
#define KVMSCOPE_PMU_CPU_CLOCK_H

#include <stdint.h>

struct cpu_clock {
	int event; /* -1: CLOCK_THREAD_CPUTIME_ID */
};

/* Always does; says in the log (debug) where it is CLOCK_THREAD_CPUTIME_ID. */
void cpu_clock_open(struct cpu_clock *clock);
void cpu_clock_close(struct cpu_clock *clock);

/* ns, from a beginning of its own; never less than before. A system call. */
uint64_t cpu_clock_now(const struct cpu_clock *clock);

#endif
