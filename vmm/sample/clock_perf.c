/* SPDX-License-Identifier: Apache-2.0 */
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
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/sample/clock_source.h"

/* ns; a system call at this interval has no measurable cost */
#define CHECK_INTERVAL (5 * NS_PER_MS)

static int send_signals(int event, pid_t thread)
{
	struct f_owner_ex owner = { .type = F_OWNER_TID, .pid = thread };

	if (fcntl(event, F_SETOWN_EX, &owner) || fcntl(event, F_SETSIG, VCPU_SAMPLE_SIGNAL) ||
	    fcntl(event, F_SETFL, O_ASYNC | O_NONBLOCK))
		return error_set(
			-errno, "cannot direct the signal of a perf event to the vCPU's thread: %s",
			strerror(errno));
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

	clock->event = (int)syscall(SYS_perf_event_open, &attributes, clock->thread, -1, -1,
				    PERF_FLAG_FD_CLOEXEC);
	if (clock->event < 0)
		return error_set(-errno,
				 "cannot open a cpu-clock event (perf_event_open: %s); set "
				 "kernel.perf_event_paranoid to at most 1, or grant CAP_PERFMON",
				 strerror(errno));
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
		return error_set(-errno, "cannot control the cpu-clock event: %s", strerror(errno));
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
	return due + sampling_account(clock);
}

const struct sampling_clock_operations sampling_clock_perf_event = {
	.source = SAMPLING_SOURCE_PERF_EVENT,
	.open = open_event,
	.close = close_event,
	.start = start_event,
	.stop = stop_event,
	.change_period = set_event_period,
	.consume = consume_periods,
};
