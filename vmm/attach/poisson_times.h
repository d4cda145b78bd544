/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When to sample a thread, and how much CPU time a sample stands for.
 *
 * Samples are a Poisson process in the host's clock, and therefore in the thread's CPU time,
 * however it sleeps in between. The CPU time since the last sample of the running thread is then
 * independent of where the thread is now, so the shares of samples are the shares of CPU time. With
 * other intervals, parts of a burst of work of about their length would be over- or
 * underrepresented.
 *
 * Stateless and non-blocking: any thread.
 */
#ifndef KVMSCOPE_ATTACH_POISSON_TIMES_H
#define KVMSCOPE_ATTACH_POISSON_TIMES_H

#include <stdint.h>

struct poisson_times {
	uint64_t interval; /* ns, the mean; not 0 */
	uint64_t random;   /* state of the generator, not 0 */
};

/* ns: the first time after PLANNED that is not before EARLIEST; earlier ones are skipped. An
 * interval is at most 8 mean ones. */
uint64_t poisson_times_next(struct poisson_times *times, uint64_t planned, uint64_t earliest);

/*
 * ns that a thread is not stopped again after it was for STOPPED: at least as long, on average four
 * times and at most 25 times as long. Random, as constant rests longer than the interval could
 * synchronize samples with periodic work of the guest.
 */
uint64_t poisson_times_rest(struct poisson_times *times, uint64_t stopped);

/* ns that a sample stands for after RAN ns of CPU time: at most 10 intervals or, if longer, 100
 * ms. Longer times cannot be attributed. */
uint64_t poisson_times_period(const struct poisson_times *times, uint64_t ran);

#endif
