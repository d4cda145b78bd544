/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/sample_clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/sample/clock_source.h"

/*
 * Clocks based on a POSIX timer on CLOCK_MONOTONIC that signals the vCPU's thread. For wall time
 * each expiration counts, including those merged by the kernel (timer_getoverrun(2): they come with
 * the signal).
 *
 * For CPU time, without perf events, the timer only triggers a read of the clock: samples represent
 * whole periods of CPU time that the thread used. The timer also wakes halted vCPUs, which costs
 * some CPU time itself.
 */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static int open_timer(struct sampling_clock *clock)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID,
				  .sigev_signo = VCPU_SAMPLE_SIGNAL };

	event.sigev_notify_thread_id = clock->thread;
	if (timer_create(CLOCK_MONOTONIC, &event, &clock->timer))
		return error_set(-errno, "cannot create a sampling timer: %s", strerror(errno));
	return 0;
}

static void close_timer(struct sampling_clock *clock)
{
	timer_delete(clock->timer);
}

static int set_timer(struct sampling_clock *clock, uint64_t period)
{
	struct timespec interval = { .tv_sec = period / NS_PER_S, .tv_nsec = period % NS_PER_S };
	struct itimerspec specification = { .it_interval = interval, .it_value = interval };

	if (timer_settime(clock->timer, 0, &specification, NULL))
		return error_set(-errno, "cannot set the sampling timer: %s", strerror(errno));
	return 0;
}

static int start_timer(struct sampling_clock *clock)
{
	return set_timer(clock, clock->period);
}

static int stop_timer(struct sampling_clock *clock)
{
	return set_timer(clock, 0);
}

static uint64_t consume_expirations(struct sampling_clock *clock, uint64_t expirations,
				    uint64_t now)
{
	return expirations * clock->period;
}

static int start_cpu_timer(struct sampling_clock *clock)
{
	clock->accounted = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return start_timer(clock);
}

static uint64_t consume_cpu_time(struct sampling_clock *clock, uint64_t expirations, uint64_t now)
{
	return sampling_account(clock);
}

const struct sampling_clock_operations sampling_clock_wall_timer = {
	.source = SAMPLING_SOURCE_WALL_TIMER,
	.open = open_timer,
	.close = close_timer,
	.start = start_timer,
	.stop = stop_timer,
	.change_period = start_timer,
	.consume = consume_expirations,
};

const struct sampling_clock_operations sampling_clock_cpu_timer = {
	.source = SAMPLING_SOURCE_CPU_TIMER,
	.open = open_timer,
	.close = close_timer,
	.start = start_cpu_timer,
	.stop = stop_timer,
	.change_period = start_timer,
	.consume = consume_cpu_time,
};

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
	THREAD_CHECK(&clock->owner);
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

	THREAD_CHECK(&clock->owner);
	error = clock->operations->start(clock);
	clock->ticking = !error;
	return error;
}

int sampling_clock_stop(struct sampling_clock *clock)
{
	THREAD_CHECK(&clock->owner);
	clock->ticking = false;
	return clock->operations->stop(clock);
}

int sampling_clock_set_frequency(struct sampling_clock *clock, unsigned int frequency)
{
	int error = check_frequency(frequency);

	THREAD_CHECK(&clock->owner);
	if (error)
		return error;
	clock->period = NS_PER_S / frequency;
	return clock->ticking ? clock->operations->change_period(clock) : 0;
}

uint64_t sampling_clock_consume(struct sampling_clock *clock, uint64_t expirations, uint64_t now)
{
	uint64_t due = expirations - clock->expirations_seen;

	THREAD_CHECK(&clock->owner);
	clock->expirations_seen = expirations;
	return clock->operations->consume(clock, due, now);
}
