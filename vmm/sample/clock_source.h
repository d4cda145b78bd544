/* SPDX-License-Identifier: Apache-2.0 */
/* What stands behind a sampling clock. */
#ifndef KVMSCOPE_SAMPLE_CLOCK_SOURCE_H
#define KVMSCOPE_SAMPLE_CLOCK_SOURCE_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "vmm/sample/sample_clock.h"

/* Functions of one source, all on the clock's thread; as those of the clock's interface that are
 * named alike.
 */
struct sampling_clock_operations {
	enum sampling_clock_source source;
	int (*open)(struct sampling_clock *clock);
	void (*close)(struct sampling_clock *clock); /* only after open() */
	int (*start)(struct sampling_clock *clock);
	int (*stop)(struct sampling_clock *clock);
	/* clock->period has changed while the clock ticks. */
	int (*change_period)(struct sampling_clock *clock);
	/* EXPIRATIONS since the last call, NOW as in sampling_clock_take(). */
	uint64_t (*take)(struct sampling_clock *clock, uint64_t expirations, uint64_t now);
};

extern const struct sampling_clock_operations sampling_clock_perf_event;
extern const struct sampling_clock_operations sampling_clock_wall_timer;
extern const struct sampling_clock_operations sampling_clock_cpu_timer;

struct sampling_clock {
	const struct sampling_clock_operations *operations;
	uint64_t period;           /* ns */
	uint64_t expirations_seen; /* as of the last take */
	pid_t thread;
	bool ticking;

	int event;           /* of the perf event */
	timer_t timer;       /* of the timers */
	uint64_t accounted;  /* of the CPU clocks: the thread's CPU time, ns, up to which samples
			      * stand for it
			      */
	uint64_t taken_at;   /* of the perf event: NOW of the last take */
	uint64_t checked_at; /* of the perf event: NOW of the last take that asked for CPU time */
};

/*
 * Whole periods of the thread's CPU time that no sample stands for yet, in
 * ns; from now on one does. Only the thread itself.
 */
static inline uint64_t sampling_account(struct sampling_clock *clock)
{
	uint64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID), missing;

	if (used < clock->accounted + clock->period)
		return 0;
	missing = (used - clock->accounted) / clock->period * clock->period;
	clock->accounted += missing;
	return missing;
}

#endif
