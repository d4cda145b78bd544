// SPDX-License-Identifier: Apache-2.0
#include "vmm/session/flight_requests.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/ring.h"
#include "shared/sample_record.h"

/* Frames of a sample that is large, as samples of Linux guests usually are. */
#define DEPTH_USUAL 40

/* A kernel that panics prints for some time before it resets the machine. */
#define PANIC_PATIENCE NS_PER_S

/* Users ask for their result every 20 ms (cmd_dump.c): so long one is waited for who has it to
 * come. */
#define USER_TRIES   50
#define USER_WAIT_US 10000

/* Files that users have asked for: those that wait, and the latest that do not. */
#define REQUESTS 16

struct request {
	uint64_t number; /* 0: free */
	uint64_t after;  /* ns */
	bool own_path;   /* PATH was asked for */
	int error;       /* -EINPROGRESS: not written yet */
	bool told;       /* the user knows that */
	char message[ERROR_MESSAGE_SIZE];
	char path[PATH_MAX]; /* as asked for, then where it is */
	uint64_t samples, bytes;
};

struct flight_requests {
	struct flight_requests_options options;
	struct trigger *trigger;
	struct flight_options flight;
	atomic_uint files;
	pthread_mutex_t lock; /* of the requests */
	struct request requests[REQUESTS];
};

/* A ring in overwrite mode surely holds a half of its size. */
int flight_ring_size(uint64_t time, unsigned int frequency, bool callchains, size_t *size)
{
	size_t sample = sizeof(struct ring_record) + sample_size(callchains ? DEPTH_USUAL : 1);
	double seconds = (double)time / 1e9;
	double needed = 2 * seconds * frequency * (double)sample;

	if (needed > (double)RING_SIZE_MAX)
		return error_set(
			-EINVAL,
			"the flight recorder: %.0f s at %u Hz do not fit a ring: at most %.0f s do, or a lower frequency",
			seconds, frequency, seconds * (double)RING_SIZE_MAX / needed);
	for (*size = RING_SIZE_MIN; (double)*size < needed;)
		*size *= 2;
	return 0;
}

static struct request *find_request(struct flight_requests *flight, uint64_t number)
{
	for (size_t i = 0; i < REQUESTS; i++)
		if (number && flight->requests[i].number == number)
			return &flight->requests[i];
	return NULL;
}

/* For a new one: a free one, or the oldest that has its result. NULL: all wait. */
static struct request *make_request(struct flight_requests *flight)
{
	struct request *oldest = NULL;

	for (size_t i = 0; i < REQUESTS; i++) {
		struct request *request = &flight->requests[i];

		if (request->error != -EINPROGRESS && (!oldest || request->number < oldest->number))
			oldest = request;
	}
	return oldest;
}

static void describe(const struct trigger_event *event, struct flight_trigger *trigger)
{
	trigger->number = event->number;
	trigger->patience = event->kind == TRIGGER_PANIC ? PANIC_PATIENCE : 0;
	trigger->by_guest = trigger_is_guests(event->kind);
	trigger->told.time = event->time;
	snprintf(trigger->told.kind, sizeof(trigger->told.kind), "%s",
		 trigger_kind_name(event->kind));
	snprintf(trigger->told.detail, sizeof(trigger->told.detail), "%s", event->detail);
}

static bool take(void *context, struct flight_trigger *trigger)
{
	struct flight_requests *flight = context;
	struct trigger_event event;
	const struct request *request;

	if (!trigger_take(flight->trigger, &event))
		return false;
	*trigger = (struct flight_trigger){ .after = flight->options.after };
	describe(&event, trigger);
	/* Whoever fires for a request holds the lock until its number is noted. */
	pthread_mutex_lock(&flight->lock);
	request = find_request(flight, event.number);
	if (request) {
		trigger->after = request->after;
		trigger->path = request->own_path ? request->path : NULL;
	}
	pthread_mutex_unlock(&flight->lock);
	if (trigger->patience < trigger->after + flight->options.delay)
		trigger->patience = trigger->after + flight->options.delay;
	return true;
}

static uint64_t missed(void *context)
{
	return trigger_missed(((struct flight_requests *)context)->trigger);
}

static void answer(struct request *request, const struct flight_result *result)
{
	request->error = result->error;
	request->samples = result->samples;
	request->bytes = result->bytes;
	if (result->error)
		snprintf(request->message, sizeof(request->message), "%s", error_message());
	else if (!realpath(result->path, request->path))
		snprintf(request->path, sizeof(request->path), "%s", result->path);
}

static void done(void *context, const struct flight_result *result)
{
	struct flight_requests *flight = context;

	if (!result->error)
		atomic_fetch_add(&flight->files, 1);
	pthread_mutex_lock(&flight->lock);
	for (size_t i = 0; i < result->count; i++) {
		struct request *request = find_request(flight, result->numbers[i]);

		if (request)
			answer(request, result);
	}
	pthread_mutex_unlock(&flight->lock);
}

int flight_requests_create(struct flight_requests **result,
			   const struct flight_requests_options *options)
{
	struct flight_requests *flight = calloc(1, sizeof(*flight));
	int error;

	if (!flight)
		return error_set(-ENOMEM, "no memory for the flight recorder");
	error = trigger_create(&flight->trigger);
	if (error) {
		free(flight);
		return error;
	}
	flight->options = *options;
	flight->flight = (struct flight_options){
		.before = options->before,
		.since = clock_ns(CLOCK_MONOTONIC_RAW),
		.by_guest_max = options->by_guest_max,
		.wake_fd = trigger_fd(flight->trigger),
		.take = take,
		.missed = missed,
		.done = done,
		.context = flight,
	};
	pthread_mutex_init(&flight->lock, NULL);
	*result = flight;
	return 0;
}

void flight_requests_destroy(struct flight_requests *flight)
{
	if (!flight)
		return;
	trigger_destroy(flight->trigger);
	pthread_mutex_destroy(&flight->lock);
	free(flight);
}

const struct flight_options *flight_requests_for(struct flight_requests *flight)
{
	return &flight->flight;
}

struct trigger *flight_requests_trigger(struct flight_requests *flight)
{
	return flight->trigger;
}

unsigned int flight_requests_files(struct flight_requests *flight)
{
	return atomic_load(&flight->files);
}

int flight_requests_ask(struct flight_requests *flight, const char *path, uint64_t after,
			uint64_t *number)
{
	struct request *request;
	int error = path ? flight_check_path(path) : 0;

	if (error)
		return error;
	pthread_mutex_lock(&flight->lock);
	request = make_request(flight);
	*number = request ? trigger_fire(flight->trigger, TRIGGER_COMMAND, "") : 0;
	if (*number) {
		request->number = *number;
		request->after = after == UINT64_MAX ? flight->options.after : after;
		request->own_path = path;
		request->told = false;
		request->error = -EINPROGRESS;
		snprintf(request->path, sizeof(request->path), "%s", path ? path : "");
	} else {
		error = error_set(-EBUSY, "too many flight recordings are waiting to be written");
	}
	pthread_mutex_unlock(&flight->lock);
	return error;
}

int flight_requests_result(struct flight_requests *flight, uint64_t number,
			   struct flight_request_result *result)
{
	struct request *request;
	int error = 0;

	pthread_mutex_lock(&flight->lock);
	request = find_request(flight, number);
	if (request)
		request->told = request->error != -EINPROGRESS;
	if (!request) {
		error = error_set(-ENOENT, "no flight recording was asked for by the number %llu",
				  (unsigned long long)number);
	} else if (request->error == -EINPROGRESS) {
		error = error_set(-EINPROGRESS, "the flight recording is not written yet");
	} else if (request->error) {
		error = error_set(request->error, "%s", request->message);
	} else {
		memcpy(result->path, request->path, sizeof(result->path));
		result->samples = request->samples;
		result->bytes = request->bytes;
	}
	pthread_mutex_unlock(&flight->lock);
	return error;
}

static bool has_untold(struct flight_requests *flight)
{
	bool found = false;

	pthread_mutex_lock(&flight->lock);
	for (size_t i = 0; i < REQUESTS; i++) {
		const struct request *request = &flight->requests[i];

		found |= request->number && request->error != -EINPROGRESS && !request->told;
	}
	pthread_mutex_unlock(&flight->lock);
	return found;
}

void flight_requests_wait_for_users(struct flight_requests *flight)
{
	for (int try = 0; try < USER_TRIES && has_untold(flight); try++)
		usleep(USER_WAIT_US);
}
