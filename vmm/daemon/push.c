/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/push.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "shared/thread_start.h"
#include "vmm/daemon/push_profile.h"
#include "vmm/daemon/push_request.h"
#include "vmm/daemon/push_spool.h"

#define RETRY_FIRST   1000   /* ms */
#define RETRY_LONGEST 300000 /* ms */
/* Multiple of the first retry before the spool is tried again, whose disk may be full. */
#define SPOOL_RETRIES 5
/* Attempts to read a recording: a disk may come back, a bad sector does not. */
#define READS_MAX 10
/* Refusals until a profile is dropped; between two of them all others are sent, and a retry
 * passes. */
#define REFUSALS_MAX 5

struct push {
	struct recordings *recordings;
	char *header_file; /* owned; NULL: none */
	char *directory;   /* of the spool; owned */
	unsigned int retry_ms;
	enum push_format format;
	struct push_spool *spool;
	struct push_request *request;
	struct curl_slist *headers;
	pthread_t thread;
	bool started;
	int stop_fd; /* eventfd */
	atomic_bool stop;

	struct thread_check owner; /* of the thread, which alone uses the following */
	/* The current round: the profiles that were waiting when it began, the oldest first. */
	struct push_item *items; /* owned; NULL: no round */
	size_t count, next;
	bool refusals;        /* in this round */
	uint64_t retry;       /* ms to wait after the next failure */
	uint64_t not_before;  /* ms: next round */
	uint64_t spool_again; /* ms: next recording */
	unsigned int unread;  /* failed attempts to read the oldest recording */
	bool failing;         /* logged */

	_Atomic uint64_t pushed, bytes, failures, refused, unreadable;
};

/* True if its profiles are on the disk, or can never be. */
static bool convert(struct push *push, const struct recordings_file *file)
{
	int error = push_profile_spool(push->spool, file, push->format, &push->stop);

	if (error == -ECANCELED)
		return false;
	push->unread = error == -ESTALE ? push->unread + 1 : 0;
	if (error == -EINVAL || push->unread == READS_MAX) {
		log_warning("not pushed: %s", error_message());
		push->unreadable++;
	}
	if (!error || error == -EINVAL || error == -ENOENT || push->unread == READS_MAX) {
		push->unread = 0;
		return true;
	}
	log_warning("not pushed yet: %s", error_message());
	return false;
}

/* Converts the oldest waiting recording; one per turn, so that sending continues. */
static void convert_next(struct push *push)
{
	struct recordings_file file;

	THREAD_CHECK(&push->owner);
	if (clock_ms(CLOCK_MONOTONIC) < push->spool_again)
		return;
	if (!recordings_next(push->recordings, &file))
		return;
	if (convert(push, &file))
		recordings_done(push->recordings, &file);
	else
		push->spool_again =
			clock_ms(CLOCK_MONOTONIC) + SPOOL_RETRIES * (uint64_t)push->retry_ms;
}

static void end_round(struct push *push)
{
	free(push->items);
	push->items = NULL;
	push->count = push->next = 0;
}

/* Waits before the next request; partly at random, as the store has other clients. */
static void back_off(struct push *push)
{
	uint64_t wait =
		push->retry - push->retry / 4 + arc4random_uniform((uint32_t)push->retry / 4 + 1);

	end_round(push);
	push->not_before = clock_ms(CLOCK_MONOTONIC) + wait;
	push->retry = push->retry * 2 < RETRY_LONGEST ? push->retry * 2 : RETRY_LONGEST;
}

static void fail(struct push *push)
{
	push->failures++;
	if (!push->failing)
		log_warning("profiles cannot be pushed and wait in %s: %s", push->directory,
			    error_message());
	push->failing = true;
	back_off(push);
}

static void succeed(struct push *push, const struct push_item *item, uint64_t size)
{
	push_spool_remove(push->spool, item);
	push->pushed++;
	push->bytes += size;
	if (push->failing)
		log_info("profiles are pushed again");
	push->failing = false;
	push->retry = push->retry_ms;
}

static void drop(struct push *push, const struct push_item *item)
{
	log_warning("a profile of %s is dropped: %s", item->domain, error_message());
	push_spool_remove(push->spool, item);
	push->refused++;
}

/* The other profiles are sent first: it waits for the next round. */
static void handle_refusal(struct push *push, const struct push_item *item)
{
	struct push_item again = *item;

	push->failures++;
	push->refusals = true;
	again.refused = push_spool_refuse(push->spool, item);
	if (again.refused >= REFUSALS_MAX)
		drop(push, &again);
}

static void send_item(struct push *push, const struct push_item *item)
{
	uint64_t size;
	int fd = push_spool_read(push->spool, item, &size);
	enum push_outcome outcome;

	if (fd < 0)
		return; /* it was dropped for a newer one */
	outcome = push_request_send(push->request, item, fd, size, push->headers);
	close(fd);
	if (atomic_load(&push->stop) && outcome != PUSH_ACCEPTED)
		return;
	if (outcome == PUSH_ACCEPTED)
		succeed(push, item, size);
	else if (outcome == PUSH_REFUSED)
		handle_refusal(push, item);
	else if (outcome == PUSH_REJECTED)
		drop(push, item);
	else
		fail(push);
}

/* Headers are read for each round, as they may expire. */
static bool begin_round(struct push *push)
{
	curl_slist_free_all(push->headers);
	push->headers = NULL;
	push->refusals = false;
	if (push_spool_list(push->spool, &push->items, &push->count) ||
	    (push->header_file && push_headers_read(push->header_file, &push->headers))) {
		fail(push);
		return false;
	}
	if (push->count)
		return true;
	end_round(push);
	push->not_before = clock_ms(CLOCK_MONOTONIC) + push->retry_ms;
	return false;
}

/* Sends one request, if it is time. */
static void send_next(struct push *push)
{
	THREAD_CHECK(&push->owner);
	if (!push->items && (clock_ms(CLOCK_MONOTONIC) < push->not_before || !begin_round(push)))
		return;
	send_item(push, &push->items[push->next]);
	if (!push->items || ++push->next < push->count)
		return;
	if (push->refusals)
		back_off(push);
	else
		end_round(push);
}

/* ms until there is work without an event; -1: none. */
static int time_left(const struct push *push)
{
	struct push_spool_counts counts;
	uint64_t now = clock_ms(CLOCK_MONOTONIC), next = UINT64_MAX;

	push_spool_count(push->spool, &counts);
	if (counts.files)
		next = push->not_before;
	if (push->spool_again > now && push->spool_again < next)
		next = push->spool_again;
	if (next == UINT64_MAX)
		return -1;
	return next > now ? (int)(next - now) : 0;
}

/* Waits for a recording, a due request, or the end. */
static void wait_for_work(const struct push *push)
{
	const bool take = clock_ms(CLOCK_MONOTONIC) >= push->spool_again;
	struct pollfd events[] = {
		{ .fd = push->stop_fd, .events = POLLIN },
		{ .fd = take ? recordings_new_fd(push->recordings) : -1, .events = POLLIN },
	};

	if (!push->items)
		poll(events, 2, time_left(push));
}

static void *run(void *argument)
{
	struct push *push = argument;

	while (!atomic_load(&push->stop)) {
		convert_next(push);
		send_next(push);
		wait_for_work(push);
	}
	return NULL;
}

static int start_thread(struct push *push)
{
	int error = thread_start(&push->thread, "push", run, push);

	push->started = !error;
	return error ? error_set(error, "cannot start the push thread: %s", strerror(-error)) : 0;
}

static int open_all(struct push *push, const struct push_options *options)
{
	int error;

	push->directory = strdup(options->spool);
	push->header_file = options->header_file ? strdup(options->header_file) : NULL;
	if (!push->directory || (options->header_file && !push->header_file))
		return error_set(-ENOMEM, "no memory to push");
	push->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (push->stop_fd < 0)
		return error_set(-errno, "cannot create an eventfd: %s", strerror(errno));
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return error_set(-ENOMEM, "cannot initialize libcurl");
	push->format = options->format;
	error = push_request_open(&push->request, options->url, options->format, options->ca_file,
				  options->host, &push->stop);
	if (!error && push->header_file)
		error = push_headers_read(push->header_file, &push->headers);
	return error ? error : push_spool_open(&push->spool, options->spool, options->spool_size);
}

int push_start(struct push **result, const struct push_options *options)
{
	struct push *push = calloc(1, sizeof(*push));
	int error;

	if (!push)
		return error_set(-ENOMEM, "no memory to push");
	push->recordings = options->recordings;
	push->retry = push->retry_ms = options->retry_ms ? options->retry_ms : RETRY_FIRST;
	push->stop_fd = -1;
	error = open_all(push, options);
	if (!error)
		error = start_thread(push);
	if (error)
		push_stop(push);
	else
		*result = push;
	return error;
}

void push_stop(struct push *push)
{
	if (!push)
		return;
	atomic_store(&push->stop, true);
	if (push->started) {
		eventfd_write(push->stop_fd, 1);
		pthread_join(push->thread, NULL);
	}
	end_round(push);
	curl_slist_free_all(push->headers);
	push_request_close(push->request);
	push_spool_close(push->spool);
	if (push->stop_fd >= 0)
		close(push->stop_fd);
	free(push->header_file);
	free(push->directory);
	free(push);
}

void push_statistics(struct push *push, struct push_statistics *statistics)
{
	struct push_spool_counts counts;

	push_spool_count(push->spool, &counts);
	*statistics = (struct push_statistics){
		.pushed = push->pushed,
		.bytes = push->bytes,
		.failures = push->failures,
		.refused = push->refused,
		.unreadable = push->unreadable,
		.dropped = counts.dropped,
		.spooled = counts.files,
		.spooled_bytes = counts.bytes,
	};
}
