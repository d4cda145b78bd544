/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of sample_clock.c, for its tests. */
#ifndef KVMSCOPE_SAMPLE_CLOCK_SOURCE_H
#define KVMSCOPE_SAMPLE_CLOCK_SOURCE_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "shared/thread_check.h"
#include "vmm/sample/sample_clock.h"

/* Functions of one source, all on the clock's thread; see the functions of the same name in
 * sample_clock.h. */
struct sampling_clock_operations {
	enum sampling_clock_source source;
	int (*open)(struct sampling_clock *clock);
	void (*close)(struct sampling_clock *clock); /* only after open() */
	int (*start)(struct sampling_clock *clock);
	int (*stop)(struct sampling_clock *clock);
	/* clock->period has changed while the clock ticks. */
	int (*change_period)(struct sampling_clock *clock);
	/* EXPIRATIONS since the last call; NOW as for sampling_clock_consume(). */
	uint64_t (*consume)(struct sampling_clock *clock, uint64_t expirations, uint64_t now);
};

extern const struct sampling_clock_operations sampling_clock_cpu_timer;

struct sampling_clock {
	const struct sampling_clock_operations *operations;
	uint64_t period;           /* ns */
	uint64_t expirations_seen; /* at the last consume */
	pid_t thread;
	struct thread_check owner; /* of that thread */
	bool ticking;

	int event;          /* of the perf event */
	timer_t timer;      /* of the timers */
	uint64_t accounted; /* of the CPU clocks: CPU time of the thread in ns that samples already
			       represent */
	uint64_t consumed_at; /* of the perf event: NOW of the last consume */
	uint64_t checked_at; /* of the perf event: NOW of the last consume that read the CPU time */
};

#endif
