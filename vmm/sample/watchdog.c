/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/error.h"

/* ms between polls: a stuck vCPU is reported at most a quarter of its limit late. */
#define POLL_MS_MIN 10
#define POLL_MS_MAX 100

struct watchdog {
	struct watchdog_limits limits;
	struct trigger *trigger;
	struct vcpu_load loads[VM_CPUS_MAX];
	struct watchdog_state states[VM_CPUS_MAX];
	unsigned int vcpus; /* of both */
	int stop_fd;
	pthread_t thread;
	bool started;
};

static void poll_vcpus(struct watchdog *watchdog)
{
	struct watchdog_alarm alarms[WATCHDOG_ALARMS_MAX];
	struct vcpu_reading reading;

	for (unsigned int i = 0; i < watchdog->vcpus; i++) {
		unsigned int count;

		if (!vcpu_load_read(&watchdog->loads[i], &reading))
			continue;
		count = watchdog_judge(&watchdog->states[i], &watchdog->limits, i, &reading,
				       alarms);
		while (count--)
			trigger_fire(watchdog->trigger, alarms[count].kind, alarms[count].detail);
	}
}

static int poll_interval(const struct watchdog *watchdog)
{
	unsigned int quarter = watchdog->limits.stuck / 4;

	if (!watchdog->limits.stuck || quarter > POLL_MS_MAX)
		return POLL_MS_MAX;
	return quarter < POLL_MS_MIN ? POLL_MS_MIN : (int)quarter;
}

static void *run_watchdog(void *argument)
{
	struct watchdog *watchdog = argument;
	struct pollfd stop = { .fd = watchdog->stop_fd, .events = POLLIN };

	pthread_setname_np(pthread_self(), "watchdog");
	while (poll(&stop, 1, poll_interval(watchdog)) <= 0)
		poll_vcpus(watchdog);
	return NULL;
}

static int open_loads(struct watchdog *watchdog, const struct vm *vm)
{
	bool count_exits = watchdog->limits.stuck || watchdog->limits.exits;

	for (unsigned int i = 0; i < vm->vcpu_count; i++) {
		int error = vcpu_load_open(&watchdog->loads[i], vm->vcpus[i], count_exits);

		if (error)
			return error;
		watchdog->vcpus++;
	}
	return 0;
}

/* The thread inherits the mask: signals are for the main and the vCPU threads. */
static int start_thread(struct watchdog *watchdog)
{
	sigset_t all, before;
	int error;

	watchdog->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (watchdog->stop_fd < 0)
		return error_set(-errno, "cannot create an eventfd: %s", strerror(errno));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&watchdog->thread, NULL, run_watchdog, watchdog);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	watchdog->started = !error;
	return error ? error_set(-error, "cannot start the watchdog's thread: %s", strerror(error))
		     : 0;
}

int watchdog_create(struct watchdog **result, const struct vm *vm,
		    const struct watchdog_limits *limits, struct trigger *trigger)
{
	struct watchdog *watchdog = calloc(1, sizeof(*watchdog));
	int error;

	*result = NULL;
	if (!watchdog)
		return error_set(-ENOMEM, "no memory for the watchdog");
	watchdog->limits = *limits;
	watchdog->trigger = trigger;
	watchdog->stop_fd = -1;
	error = open_loads(watchdog, vm);
	if (!error)
		error = start_thread(watchdog);
	if (error)
		watchdog_destroy(watchdog);
	else
		*result = watchdog;
	return error;
}

void watchdog_destroy(struct watchdog *watchdog)
{
	if (!watchdog)
		return;
	if (watchdog->started) {
		eventfd_write(watchdog->stop_fd, 1);
		pthread_join(watchdog->thread, NULL);
	}
	while (watchdog->vcpus)
		vcpu_load_close(&watchdog->loads[--watchdog->vcpus]);
	if (watchdog->stop_fd >= 0)
		close(watchdog->stop_fd);
	free(watchdog);
}
