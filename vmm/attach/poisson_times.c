/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/poisson_times.h"

#include <math.h>

/* In mean intervals: one of 3000 would be longer. */
#define LONGEST       8
#define INTERVALS_MAX 10
#define PERIOD_MAX    100000000ull
/* Average rest after a stop, besides a fixed one, in multiples of the stop: the guest has to
 * make progress. */
#define REST_MORE 3

/* Above 0, up to 1. Marsaglia's xorshift64. */
static double draw(struct poisson_times *times)
{
	times->random ^= times->random << 13;
	times->random ^= times->random >> 7;
	times->random ^= times->random << 17;
	return (double)((times->random >> 11) + 1) * 0x1p-53;
}

static uint64_t draw_interval(struct poisson_times *times, uint64_t mean)
{
	double means = -log(draw(times));

	return (uint64_t)((means < LONGEST ? means : LONGEST) * (double)mean);
}

/* A Poisson process is memoryless: after skipped times it starts anew. */
uint64_t poisson_times_next(struct poisson_times *times, uint64_t planned, uint64_t earliest)
{
	return (planned > earliest ? planned : earliest) + draw_interval(times, times->interval);
}

uint64_t poisson_times_rest(struct poisson_times *times, uint64_t stopped)
{
	return stopped + draw_interval(times, REST_MORE * stopped);
}

uint64_t poisson_times_period(const struct poisson_times *times, uint64_t ran)
{
	uint64_t most = INTERVALS_MAX * times->interval;

	if (most < PERIOD_MAX)
		most = PERIOD_MAX;
	return ran < most ? ran : most;
}
