/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/stop_guard.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"

/* Missing in glibc 2.36: timer_create(2). */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static const struct itimerspec never;
static const struct itimerspec wake_time = { .it_value = { .tv_nsec = 50 * NS_PER_MS } };
static const struct itimerspec kill_time = { .it_value = { .tv_sec = 2 } };

/* Set while this thread may have stopped another. */
static _Thread_local const struct stop_guard *volatile guarding;

static void set(const struct stop_guard *guard, const struct itimerspec *wake,
		const struct itimerspec *kill)
{
	timer_settime(guard->wake, 0, wake, NULL);
	timer_settime(guard->kill, 0, kill, NULL);
}

/* Only for our timer's signal, on its thread: any process may send SIGCONT. */
static void be_awake(int number, siginfo_t *info, void *context)
{
	int error = errno;

	(void)number;
	(void)context;
	if (info->si_code == SI_TIMER && guarding)
		set(guarding, &wake_time, &kill_time);
	errno = error;
}

static int take_signal(void)
{
	struct sigaction action = { .sa_sigaction = be_awake, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigset_t signals;

	sigemptyset(&action.sa_mask);
	sigemptyset(&signals);
	sigaddset(&signals, SIGCONT);
	if (sigaction(SIGCONT, &action, NULL))
		return -errno;
	return -pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

static int make_timer(timer_t *timer, int how, int number)
{
	struct sigevent event = { .sigev_notify = how, .sigev_signo = number };

	event.sigev_notify_thread_id = gettid();
	return timer_create(CLOCK_MONOTONIC, &event, timer) ? -errno : 0;
}

static int open_guard(struct stop_guard *guard)
{
	int error = take_signal();

	if (!error)
		error = make_timer(&guard->wake, SIGEV_THREAD_ID, SIGCONT);
	if (error)
		return error;
	error = make_timer(&guard->kill, SIGEV_SIGNAL, SIGKILL);
	if (error)
		timer_delete(guard->wake);
	guard->open = !error;
	return error;
}

int stop_guard_begin(struct stop_guard *guard)
{
	int error;

	THREAD_CHECK(&guard->thread);
	error = guard->open ? 0 : open_guard(guard);
	if (error)
		return error_set(
			error,
			"cannot create a timer that ends a vCPU's stop if kvmscope is stopped "
			"meanwhile: %s",
			strerror(-error));
	guarding = guard;
	set(guard, &wake_time, &kill_time);
	return 0;
}

void stop_guard_end(struct stop_guard *guard)
{
	THREAD_CHECK(&guard->thread);
	guarding = NULL;
	set(guard, &never, &never);
}

void stop_guard_close(struct stop_guard *guard)
{
	THREAD_CHECK(&guard->thread);
	if (!guard->open)
		return;
	timer_delete(guard->wake);
	timer_delete(guard->kill);
	guard->open = false;
}
