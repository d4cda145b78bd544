/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/sample_clock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/sample/clock_source.h"

/* Consumes the whole periods of the thread's CPU time that no sample represents yet, in ns. On
 * the thread itself. */
static uint64_t account_periods(struct sampling_clock *clock)
{
	uint64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID), missing;

	if (used < clock->accounted + clock->period)
		return 0;
	missing = (used - clock->accounted) / clock->period * clock->period;
	clock->accounted += missing;
	return missing;
}

/*
 * CPU time from perf's cpu-clock event on the vCPU's thread: an hrtimer that runs only while the
 * thread does (kernel/events/core.c, perf_swevent_hrtimer), so that it ticks at up to 10 kHz, and
 * not at all while the vCPU is halted. POSIX timers of CPU time only have the scheduler tick's
 * resolution.
 *
 * Each overflow sends one queued signal. But if the host delays its timer interrupt for longer than
 * a period (a host that is itself a guest and waits for its CPU), the kernel forwards the timer
 * past the missed periods without a report. So if more time has passed since the last sample than
 * it represents, the thread's CPU time is read, and the sample also represents the missing periods.
 *
 * Conversely, the timer continues while such a host waits for its CPU (steal), when the thread uses
 * no CPU time (kernel/sched/core.c, update_rq_clock_task). So CPU time is read regularly in any
 * case, and excess periods are subtracted: a sample that represents none is not due.
 */

/* ns; a system call at this interval has no measurable cost */
#define CHECK_INTERVAL (5 * NS_PER_MS)

static int send_signals(int event, pid_t thread)
{
	struct f_owner_ex owner = { .type = F_OWNER_TID, .pid = thread };

	if (fcntl(event, F_SETOWN_EX, &owner) || fcntl(event, F_SETSIG, VCPU_SAMPLE_SIGNAL) ||
	    fcntl(event, F_SETFL, O_ASYNC | O_NONBLOCK))
		return error_set(
			-errno,
			"cannot direct the signal of a perf event to the vCPU's thread: %m");
	return 0;
}

static int open_event(struct sampling_clock *clock)
{
	struct perf_event_attr attributes = {
		.size = sizeof(attributes),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = clock->period,
		.wakeup_events = 1,
		.disabled = 1,
	};
	int error;

	/* 0: this thread. A sandbox permits no other. */
	assert(clock->thread == gettid());
	clock->event =
		(int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (clock->event < 0)
		return error_set(-errno,
				 "cannot open a cpu-clock event (perf_event_open: %m); set "
				 "kernel.perf_event_paranoid to at most 1, or grant CAP_PERFMON");
	error = send_signals(clock->event, clock->thread);
	if (error)
		close(clock->event);
	return error;
}

static void close_event(struct sampling_clock *clock)
{
	close(clock->event);
}

static int control(struct sampling_clock *clock, unsigned long request, void *argument)
{
	if (ioctl(clock->event, request, argument))
		return error_set(-errno, "cannot control the cpu-clock event: %m");
	return 0;
}

/* From here on the thread's time counts in the current period. */
static int set_event_period(struct sampling_clock *clock)
{
	clock->accounted = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return control(clock, PERF_EVENT_IOC_PERIOD, &clock->period);
}

static int start_event(struct sampling_clock *clock)
{
	int error = set_event_period(clock);

	return error ? error : control(clock, PERF_EVENT_IOC_ENABLE, NULL);
}

static int stop_event(struct sampling_clock *clock)
{
	return control(clock, PERF_EVENT_IOC_DISABLE, NULL);
}

/* The part of DUE ns, already accounted, that exceeds the thread's CPU time, rounded to periods;
 * removes it from the account. */
static uint64_t excess_periods(struct sampling_clock *clock, uint64_t due)
{
	uint64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID), ahead = 0;

	if (clock->accounted > used)
		ahead = (clock->accounted - used + clock->period / 2) / clock->period *
			clock->period;
	if (ahead > due)
		ahead = due;
	clock->accounted -= ahead;
	return ahead;
}

static uint64_t consume_periods(struct sampling_clock *clock, uint64_t expirations, uint64_t now)
{
	uint64_t due = expirations * clock->period, passed = now - clock->consumed_at;

	clock->consumed_at = now;
	clock->accounted += due;
	if (!due || (passed < due + clock->period && now - clock->checked_at < CHECK_INTERVAL))
		return due;
	clock->checked_at = now;
	due -= excess_periods(clock, due);
	return due + account_periods(clock);
}

static const struct sampling_clock_operations perf_event_clock = {
	.source = SAMPLING_SOURCE_PERF_EVENT,
	.open = open_event,
	.close = close_event,
	.start = start_event,
	.stop = stop_event,
	.change_period = set_event_period,
	.consume = consume_periods,
};

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
		return error_set(-errno, "cannot create a sampling timer: %m");
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
		return error_set(-errno, "cannot set the sampling timer: %m");
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
	return account_periods(clock);
}

static const struct sampling_clock_operations wall_timer_clock = {
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
		return open_source(clock, &wall_timer_clock);
	if (!open_source(clock, &perf_event_clock))
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
