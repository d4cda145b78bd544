/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/flight_requests.h"

#include <errno.h>
#include <limits.h>
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

/* Frames of a large sample, as samples of Linux guests usually are. */
#define DEPTH_USUAL 40

/* A kernel that panics prints for some time before it resets the machine. */
#define PANIC_PATIENCE NS_PER_S

/* Users poll for their result every 20 ms (cmd_dump.c). */
#define USER_TRIES   50
#define USER_WAIT_US 10000

/* Requests that are remembered: the pending ones, and the latest others. */
#define REQUESTS 16

struct request {
	uint64_t number; /* 0: free */
	uint64_t after;  /* ns */
	bool own_path;   /* PATH was requested */
	bool read;       /* the user knows the result */
	int error;       /* -EINPROGRESS: pending */
	char message[ERROR_MESSAGE_SIZE];
	char path[PATH_MAX]; /* as requested, then where the file is */
	uint64_t samples, bytes;
};

struct flight_requests {
	struct flight_requests_options options;
	struct trigger *trigger;
	struct flight_options flight;
	atomic_uint files;
	pthread_mutex_t lock; /* protects the requests */
	struct request requests[REQUESTS];
};

int flight_ring_size(uint64_t time, unsigned int frequency, bool callchains, size_t *size)
{
	size_t sample = sizeof(struct ring_record) + sample_size(callchains ? DEPTH_USUAL : 1);
	double seconds = (double)time / 1e9;
	/* A ring in overwrite mode holds at least half of its size. */
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

/* For a new request: a free one, or the oldest that is not pending. NULL: all are. */
static struct request *free_request(struct flight_requests *flight)
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
	trigger->by_guest = trigger_is_from_guest(event->kind);
	trigger->listed.time = event->time;
	snprintf(trigger->listed.kind, sizeof(trigger->listed.kind), "%s",
		 trigger_kind_name(event->kind));
	snprintf(trigger->listed.detail, sizeof(trigger->listed.detail), "%s", event->detail);
}

static bool on_take(void *context, struct flight_trigger *trigger)
{
	struct flight_requests *flight = context;
	struct trigger_event event;
	const struct request *request;

	if (!trigger_consume(flight->trigger, &event))
		return false;
	*trigger = (struct flight_trigger){ .after = flight->options.after };
	describe(&event, trigger);
	/* flight_requests_add() holds the lock from firing until the number is stored. */
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

static uint64_t on_missed(void *context)
{
	return trigger_missed(((struct flight_requests *)context)->trigger);
}

static void complete(struct request *request, const struct flight_result *result)
{
	request->error = result->error;
	request->samples = result->samples;
	request->bytes = result->bytes;
	if (result->error)
		snprintf(request->message, sizeof(request->message), "%s", error_message());
	else if (!realpath(result->path, request->path))
		snprintf(request->path, sizeof(request->path), "%s", result->path);
}

static void on_done(void *context, const struct flight_result *result)
{
	struct flight_requests *flight = context;

	if (!result->error)
		atomic_fetch_add(&flight->files, 1);
	pthread_mutex_lock(&flight->lock);
	for (size_t i = 0; i < result->count; i++) {
		struct request *request = find_request(flight, result->numbers[i]);

		if (request)
			complete(request, result);
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
		.next_trigger = on_take,
		.missed = on_missed,
		.done = on_done,
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

const struct flight_options *flight_requests_options_of(struct flight_requests *flight)
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

int flight_requests_add(struct flight_requests *flight, const char *path, uint64_t after,
			uint64_t *number)
{
	struct request *request;
	int error = path ? flight_check_path(path) : 0;

	if (error)
		return error;
	pthread_mutex_lock(&flight->lock);
	request = free_request(flight);
	*number = request ? trigger_fire(flight->trigger, TRIGGER_COMMAND, "") : 0;
	if (*number) {
		request->number = *number;
		request->after = after == UINT64_MAX ? flight->options.after : after;
		request->own_path = path;
		request->read = false;
		request->error = -EINPROGRESS;
		snprintf(request->path, sizeof(request->path), "%s", path ? path : "");
	} else {
		error = error_set(-EBUSY, "too many flight recordings are waiting to be written");
	}
	pthread_mutex_unlock(&flight->lock);
	return error;
}

static int describe_result(struct request *request, uint64_t number, json_t *result)
{
	bool complete;

	if (!request)
		return error_set(-ENOENT, "there is no request %llu for a flight recording",
				 (unsigned long long)number);
	complete = request->read = request->error != -EINPROGRESS;
	if (complete && request->error)
		return error_set(request->error, "%s", request->message);
	json_object_set_new(result, "complete", json_boolean(complete));
	if (!complete)
		return 0;
	json_object_set_new(result, "file", json_string(request->path));
	json_object_set_new(result, "samples", json_integer((json_int_t)request->samples));
	json_object_set_new(result, "bytes", json_integer((json_int_t)request->bytes));
	return 0;
}

int flight_requests_result(struct flight_requests *flight, uint64_t number, json_t *result)
{
	int error;

	pthread_mutex_lock(&flight->lock);
	error = describe_result(find_request(flight, number), number, result);
	pthread_mutex_unlock(&flight->lock);
	return error;
}

static bool has_unread(struct flight_requests *flight)
{
	bool found = false;

	pthread_mutex_lock(&flight->lock);
	for (size_t i = 0; i < REQUESTS; i++) {
		const struct request *request = &flight->requests[i];

		found |= request->number && request->error != -EINPROGRESS && !request->read;
	}
	pthread_mutex_unlock(&flight->lock);
	return found;
}

void flight_requests_wait_for_users(struct flight_requests *flight)
{
	for (int try = 0; try < USER_TRIES && has_unread(flight); try++)
		usleep(USER_WAIT_US);
}
