/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vCPU's sampling clock: sends VCPU_SAMPLE_SIGNAL to the vCPU's thread each
 * time a period of it has passed, and says how much time a sample stands for.
 * Other events (counters, watchpoints) fit behind the same interface.
 *
 * A clock belongs to the thread that made it: all functions are to be called
 * on that thread. None but sampling_clock_take() belongs on the sample path.
 */
#ifndef KVMSCOPE_SAMPLE_SAMPLE_CLOCK_H
#define KVMSCOPE_SAMPLE_SAMPLE_CLOCK_H

#include <stdint.h>

#define SAMPLING_FREQUENCY_MAX 10000u

enum sampling_clock_kind {
	SAMPLING_CLOCK_CPU,  /* CPU time of the vCPU's thread: a halted vCPU gives no samples */
	SAMPLING_CLOCK_WALL, /* time that passes, whatever the vCPU does */
};

/* How the time is measured; the kind says what is wanted, this what the host can do. */
enum sampling_clock_source {
	SAMPLING_SOURCE_PERF_EVENT, /* cpu-clock event of the thread; hrtimer, stopped while it does
				     * not run
				     */
	SAMPLING_SOURCE_WALL_TIMER, /* POSIX timer on CLOCK_MONOTONIC */
	SAMPLING_SOURCE_CPU_TIMER, /* the same, with the thread's CPU time looked at when it expires
				    */
};

struct sampling_clock;

/*
 * Makes the clock of the calling thread; it does not tick yet. FREQUENCY in
 * Hz, 1 to SAMPLING_FREQUENCY_MAX, else -EINVAL. A CPU clock is a perf event
 * where the host lets us have one, else a timer that wakes halted vCPUs for
 * nothing: see sampling_clock_source(). -ENOMEM and the errors of
 * timer_create() otherwise.
 */
int sampling_clock_create(struct sampling_clock **clock, enum sampling_clock_kind kind,
			  unsigned int frequency);
/* NULL is a no-op. Signals that were sent already may still come. */
void sampling_clock_destroy(struct sampling_clock *clock);

enum sampling_clock_source sampling_clock_source(const struct sampling_clock *clock);

/* The period in ns. */
uint64_t sampling_clock_period(const struct sampling_clock *clock);

/* Lets it tick, and stops it. The errors of ioctl() and timer_settime(). */
int sampling_clock_start(struct sampling_clock *clock);
int sampling_clock_stop(struct sampling_clock *clock);

/* Another frequency from now on, ticking or not. -EINVAL as above. */
int sampling_clock_set_frequency(struct sampling_clock *clock, unsigned int frequency);

/*
 * The time in ns that a sample taken now stands for: whole periods since the
 * last call, also those whose signals were merged or never sent; 0 if none is
 * due. EXPIRATIONS is the vCPU's count of them, vcpu->sample_expirations; NOW
 * is CLOCK_MONOTONIC_RAW in ns. A CPU clock asks for the thread's CPU time (a
 * system call) only if so much time has passed that periods may be missing;
 * SAMPLING_SOURCE_CPU_TIMER always does.
 */
uint64_t sampling_clock_take(struct sampling_clock *clock, uint64_t expirations, uint64_t now);

#endif
