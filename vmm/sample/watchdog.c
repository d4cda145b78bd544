/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/thread_start.h"

/* True if KIND was within its limit at the last call and now exceeds it. */
static bool begins(struct watchdog_state *state, enum trigger_kind kind, bool out_of_bounds)
{
	bool reported = state->reported[kind];

	state->reported[kind] = out_of_bounds;
	return out_of_bounds && !reported;
}

/* The last increase may be undone, see vcpu_reading: then there was no exit, and nothing has
 * moved. */
static void update_moved(struct watchdog_state *state, const struct vcpu_reading *reading)
{
	if (reading->exits < state->moved.exits) {
		state->moved = state->before;
		state->moved.exits = reading->exits;
		state->reported[TRIGGER_STUCK_VCPU] = state->reported_before;
	} else if (reading->exits > state->moved.exits) {
		state->before = state->moved;
		state->reported_before = state->reported[TRIGGER_STUCK_VCPU];
		state->moved = *reading;
	}
}

static unsigned int judge_stuck(struct watchdog_state *state, const struct watchdog_limits *limits,
				unsigned int index, const struct vcpu_reading *reading,
				struct watchdog_alarm *alarm)
{
	uint64_t ran;

	update_moved(state, reading);
	ran = reading->ran - state->moved.ran;
	if (!begins(state, TRIGGER_STUCK_VCPU, limits->stuck && ran >= limits->stuck * NS_PER_MS))
		return 0;
	alarm->kind = TRIGGER_STUCK_VCPU;
	snprintf(alarm->detail, sizeof(alarm->detail),
		 "vCPU %u ran for %llu ms without an exit; the limit is %u", index,
		 (unsigned long long)(ran / NS_PER_MS), limits->stuck);
	return 1;
}

static unsigned int judge_exits(struct watchdog_state *state, const struct watchdog_limits *limits,
				unsigned int index, const struct vcpu_reading *reading,
				struct watchdog_alarm *alarm)
{
	double seconds = (double)(reading->time - state->second.time) / (double)NS_PER_S;
	double rate = reading->exits > state->second.exits
			      ? (double)(reading->exits - state->second.exits) / seconds
			      : 0;

	if (!begins(state, TRIGGER_EXIT_RATE, limits->exits && rate > limits->exits))
		return 0;
	alarm->kind = TRIGGER_EXIT_RATE;
	snprintf(alarm->detail, sizeof(alarm->detail), "vCPU %u made %.0f exits/s; the limit is %u",
		 index, rate, limits->exits);
	return 1;
}

static unsigned int judge_steal(struct watchdog_state *state, const struct watchdog_limits *limits,
				unsigned int index, const struct vcpu_reading *reading,
				struct watchdog_alarm *alarm)
{
	double time = (double)(reading->time - state->second.time);
	double share = 100 * (double)(reading->waited - state->second.waited) / time;

	if (!begins(state, TRIGGER_STEAL, limits->steal && share > limits->steal))
		return 0;
	alarm->kind = TRIGGER_STEAL;
	snprintf(alarm->detail, sizeof(alarm->detail),
		 "vCPU %u waited %.0f %% of a second for a CPU of the host; the limit is %u %%",
		 index, share, limits->steal);
	return 1;
}

unsigned int watchdog_judge(struct watchdog_state *state, const struct watchdog_limits *limits,
			    unsigned int index, const struct vcpu_reading *reading,
			    struct watchdog_alarm *alarms)
{
	unsigned int count;

	if (!state->begun) {
		state->begun = true;
		state->before = state->moved = state->second = *reading;
		return 0;
	}
	count = judge_stuck(state, limits, index, reading, alarms);
	if (reading->time - state->second.time < NS_PER_S)
		return count;
	count += judge_exits(state, limits, index, reading, alarms + count);
	count += judge_steal(state, limits, index, reading, alarms + count);
	state->second = *reading;
	return count;
}

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

static int start_thread(struct watchdog *watchdog)
{
	int error;

	watchdog->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (watchdog->stop_fd < 0)
		return error_set(-errno, "cannot create an eventfd: %m");
	error = thread_start(&watchdog->thread, "watchdog", run_watchdog, watchdog);
	watchdog->started = !error;
	return error ? error_set(error, "cannot start the watchdog's thread: %s", strerror(-error))
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
