/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/sample_clock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/sample/clock_source.h"

static int open_source(struct sampling_clock *clock,
		       const struct sampling_clock_operations *operations)
{
	clock->operations = operations;
	return operations->open(clock);
}

static int open_any(struct sampling_clock *clock, enum sampling_clock_kind kind)
{
	if (kind == SAMPLING_CLOCK_WALL)
		return open_source(clock, &sampling_clock_wall_timer);
	if (!open_source(clock, &sampling_clock_perf_event))
		return 0;
	return open_source(clock, &sampling_clock_cpu_timer);
}

static int check_frequency(unsigned int frequency)
{
	if (frequency >= 1 && frequency <= SAMPLING_FREQUENCY_MAX)
		return 0;
	return error_set(-EINVAL, "a sampling frequency of %u Hz is out of range: 1 to %u",
			 frequency, SAMPLING_FREQUENCY_MAX);
}

int sampling_clock_create(struct sampling_clock **result, enum sampling_clock_kind kind,
			  unsigned int frequency)
{
	struct sampling_clock *clock;
	int error = check_frequency(frequency);

	if (error)
		return error;
	clock = calloc(1, sizeof(*clock));
	if (!clock)
		return error_set(-ENOMEM, "no memory for a sampling clock");
	clock->period = NS_PER_S / frequency;
	clock->thread = gettid();
	error = open_any(clock, kind);
	if (error)
		free(clock);
	else
		*result = clock;
	return error;
}

void sampling_clock_destroy(struct sampling_clock *clock)
{
	if (!clock)
		return;
	clock->operations->close(clock);
	free(clock);
}

enum sampling_clock_source sampling_clock_source(const struct sampling_clock *clock)
{
	return clock->operations->source;
}

uint64_t sampling_clock_period(const struct sampling_clock *clock)
{
	return clock->period;
}

int sampling_clock_start(struct sampling_clock *clock)
{
	int error;

	assert(clock->thread == gettid());
	error = clock->operations->start(clock);
	clock->ticking = !error;
	return error;
}

int sampling_clock_stop(struct sampling_clock *clock)
{
	assert(clock->thread == gettid());
	clock->ticking = false;
	return clock->operations->stop(clock);
}

int sampling_clock_set_frequency(struct sampling_clock *clock, unsigned int frequency)
{
	int error = check_frequency(frequency);

	assert(clock->thread == gettid());
	if (error)
		return error;
	clock->period = NS_PER_S / frequency;
	return clock->ticking ? clock->operations->change_period(clock) : 0;
}

uint64_t sampling_clock_consume(struct sampling_clock *clock, uint64_t expirations, uint64_t now)
{
	uint64_t due = expirations - clock->expirations_seen;

	clock->expirations_seen = expirations;
	return clock->operations->consume(clock, due, now);
}
