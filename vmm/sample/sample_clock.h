/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vCPU's sampling clock: sends VCPU_SAMPLE_SIGNAL to the vCPU's thread after each period, and
 * reports the time that a sample represents. Other events (counters, watchpoints) fit the same
 * interface.
 *
 * A clock belongs to the thread that created it: all functions are for that thread. Only
 * sampling_clock_consume() is for the sample path.
 */
#ifndef KVMSCOPE_SAMPLE_SAMPLE_CLOCK_H
#define KVMSCOPE_SAMPLE_SAMPLE_CLOCK_H

#include <stdint.h>

#define SAMPLING_FREQUENCY_MAX 10000u

enum sampling_clock_kind {
	SAMPLING_CLOCK_CPU,  /* CPU time of the vCPU's thread: no samples of a halted vCPU */
	SAMPLING_CLOCK_WALL, /* elapsed time, regardless of what the vCPU does */
};

/* How the time is measured: the kind is the request, this is what the host supports. */
enum sampling_clock_source {
	SAMPLING_SOURCE_PERF_EVENT, /* cpu-clock event of the thread: an hrtimer, stopped while the
				       thread does not run */
	SAMPLING_SOURCE_WALL_TIMER, /* POSIX timer on CLOCK_MONOTONIC */
	SAMPLING_SOURCE_CPU_TIMER,  /* the same, but reads the thread's CPU time at each expiration
				     */
};

struct sampling_clock;

/*
 * Creates the clock of the calling thread, stopped. FREQUENCY in Hz, 1 to SAMPLING_FREQUENCY_MAX,
 * else -EINVAL. A CPU clock is a perf event if the host permits it, else a timer that needlessly
 * wakes halted vCPUs: see sampling_clock_source(). Otherwise -ENOMEM or an errno of timer_create().
 */
int sampling_clock_create(struct sampling_clock **clock, enum sampling_clock_kind kind,
			  unsigned int frequency);
/* NULL is a no-op. Signals already sent may still arrive. */
void sampling_clock_destroy(struct sampling_clock *clock);

enum sampling_clock_source sampling_clock_source(const struct sampling_clock *clock);

/* The period in ns. */
uint64_t sampling_clock_period(const struct sampling_clock *clock);

/* Start and stop it. The errors of ioctl() and timer_settime(). */
int sampling_clock_start(struct sampling_clock *clock);
int sampling_clock_stop(struct sampling_clock *clock);

/* Changes the frequency, also while it ticks. -EINVAL as above. */
int sampling_clock_set_frequency(struct sampling_clock *clock, unsigned int frequency);

/*
 * The time in ns that a sample now represents: whole periods since the last call, including those
 * whose signals were merged or never sent; 0 if none is due. EXPIRATIONS is
 * vcpu->sample_expirations, NOW is CLOCK_MONOTONIC_RAW in ns. A CPU clock reads the thread's CPU
 * time (a system call) only if periods may be missing for the time that has passed;
 * SAMPLING_SOURCE_CPU_TIMER always does.
 */
uint64_t sampling_clock_consume(struct sampling_clock *clock, uint64_t expirations, uint64_t now);

#endif
