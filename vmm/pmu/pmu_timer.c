/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pmu/pmu_timer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/kvm/vcpu.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* About 146 years: perf refuses periods of 2^63 and more. */
#define WAIT_MAX (UINT64_C(1) << 62)

static int failed(const char *what)
{
	return error_set(-errno, "the timer of the guest's PMU: %s: %m", what);
}

static int direct_signals(int event)
{
	struct f_owner_ex owner = { .type = F_OWNER_TID, .pid = gettid() };

	return fcntl(event, F_SETOWN_EX, &owner) || fcntl(event, F_SETSIG, VCPU_KICK_SIGNAL) ||
	       fcntl(event, F_SETFL, O_ASYNC | O_NONBLOCK);
}

/* -1 if no event can be opened. */
static int open_event(void)
{
	struct perf_event_attr attributes = {
		.size = sizeof(attributes),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = NS_PER_S,
		.wakeup_events = 1,
		.disabled = 1,
	};
	int event = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (event >= 0 && !direct_signals(event))
		return event;
	log_debug(
		"no cpu-clock event for the guest's PMU: %m; its interrupts depend on the scheduler tick");
	if (event >= 0)
		close(event);
	return -1;
}

int pmu_timer_open(struct pmu_timer *timer)
{
	struct sigevent signal = { .sigev_notify = SIGEV_THREAD_ID,
				   .sigev_signo = VCPU_KICK_SIGNAL };

	*timer = (struct pmu_timer){ .event = open_event() };
	if (timer->event >= 0)
		return 0;
	signal.sigev_notify_thread_id = gettid();
	return timer_create(CLOCK_THREAD_CPUTIME_ID, &signal, &timer->timer)
		       ? failed("timer_create")
		       : 0;
}

void pmu_timer_close(struct pmu_timer *timer)
{
	if (timer->event >= 0)
		close(timer->event);
	else
		timer_delete(timer->timer);
}

/* 0 disarms it. */
static int set_posix_timer(struct pmu_timer *timer, uint64_t wait)
{
	const struct itimerspec when = { .it_value = { .tv_sec = (time_t)(wait / NS_PER_S),
						       .tv_nsec = (long)(wait % NS_PER_S) } };

	return timer_settime(timer->timer, 0, &when, NULL) ? failed("timer_settime") : 0;
}

static uint64_t count_of(const struct pmu_timer *timer)
{
	uint64_t count = 0;

	(void)!read(timer->event, &count, sizeof(count));
	return count;
}

/* The event's count stops after the kick. */
static bool is_waiting(const struct pmu_timer *timer)
{
	return count_of(timer) != count_of(timer);
}

/*
 * PERF_EVENT_IOC_REFRESH allows one kick only: a host that needs longer than a short period for the
 * timer interrupt would handle nothing else, and the thread could never stop it. If the kick comes
 * between the two calls the timer stays stopped, and handling that kick arms it again.
 */
static int set_event(struct pmu_timer *timer, uint64_t period)
{
	const bool waiting = is_waiting(timer);

	if (ioctl(timer->event, PERF_EVENT_IOC_PERIOD, &period) ||
	    (!waiting && ioctl(timer->event, PERF_EVENT_IOC_REFRESH, 1)))
		return failed("cannot set its period");
	return 0;
}

int pmu_timer_arm(struct pmu_timer *timer, uint64_t wait)
{
	if (wait < PMU_TIMER_MIN)
		wait = PMU_TIMER_MIN;
	if (wait > WAIT_MAX)
		wait = WAIT_MAX;
	return timer->event >= 0 ? set_event(timer, wait) : set_posix_timer(timer, wait);
}

int pmu_timer_disarm(struct pmu_timer *timer)
{
	if (timer->event < 0)
		return set_posix_timer(timer, 0);
	/* Disabling the event would keep its unused kick, in addition to the one of the next arm.
	 */
	return is_waiting(timer) ? set_event(timer, WAIT_MAX) : 0;
}
