/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When to look at a thread, and what CPU time a look stands for.
 *
 * Looks are a Poisson process: by the host's clock, and with that by the thread's CPU time, too,
 * however it sleeps in between. The CPU time since the last look that found it running then tells
 * nothing about where the thread is at this one, and shares of these times are those of what it
 * ran. Intervals of another law do not have that: of a burst of work about as long as they are,
 * looks would stand in its parts for too much or too little.
 *
 * No function waits or keeps anything: any thread.
 */
#ifndef KVMSCOPE_ATTACH_POISSON_TIMES_H
#define KVMSCOPE_ATTACH_POISSON_TIMES_H

#include <stdint.h>

struct poisson_times {
	uint64_t interval; /* ns, the mean; not 0 */
	uint64_t random;   /* state of the generator; not 0 */
};

/* ns: of the first time after PLANNED that is not before EARLIEST; those between them are left out.
 * An interval is at most 8 mean ones. */
uint64_t poisson_times_next(struct poisson_times *times, uint64_t planned, uint64_t earliest);

/*
 * ns that a thread is let alone for that a look stopped for STOPPED: as long at least, four times
 * as long on average, and 25 times at most. At random, too: rests that are all alike, where they
 * are longer than an interval, would take looks into the step of a guest whose work comes round as
 * often.
 */
uint64_t poisson_times_rest(struct poisson_times *times, uint64_t stopped);

/*
 * ns that a look stands for after RAN ns of CPU time: at most 10 intervals, or 100 ms where that is
 * more. After a longer time nobody knows what was in it.
 */
uint64_t poisson_times_period(const struct poisson_times *times, uint64_t ran);

#endif
