/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/flight_recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "vmm/perf_data/output_path.h"
#include "vmm/record/collector.h"
#include "vmm/record/collector_jit.h"
#include "vmm/record/flight_deferred.h"
#include "vmm/record/flight_dump.h"

/* Events pass through the guest's scheduler: they are known this much later, */
#define SIDEBAND_DELAY (500 * NS_PER_MS)
/* or even this much later if the guest is stuck. */
#define SIDEBAND_MARGIN (10 * NS_PER_S)

/* The next file, with its triggers so far. */
struct window {
	uint64_t due;     /* ns, when it is written */
	bool by_guest;    /* and by nothing else */
	const char *path; /* NULL: the run's next */
	uint64_t numbers[PERF_DATA_FLIGHT_TRIGGERS];
	struct perf_data_flight flight;
};

struct flight {
	struct thread_check thread;
	const struct collector_options *options;
	struct collector_kernel *kernel;
	const struct collector_jit *jit;
	struct flight_sideband sideband;
	struct flight_deferred late;
	struct window window;       /* open if its flight has triggers */
	struct flight_trigger next; /* belongs to the next window */
	bool has_next;
	unsigned int files;    /* numbered files so far */
	unsigned int by_guest; /* files that only the guest triggered */
	uint64_t refused;      /* triggers of the guest after by_guest_max files */
	uint64_t bytes;
	uint64_t boot; /* ns, start of the guest's present boot; 0: before the recorder's */
	int error;
	char message[ERROR_MESSAGE_SIZE];
};

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

int flight_check_path(const char *path)
{
	char target[PATH_MAX];

	if (output_path_is_standard(path) ||
	    (!access(path, F_OK) && !output_path_is_file(path, target)))
		return error_set(-EINVAL,
				 "no flight recording can be written to %s: it is no regular file",
				 path);
	return 0;
}

/* Checked at the start rather than when the guest has crashed. */
static int check_place(const char *path)
{
	char copy[PATH_MAX];
	int error = flight_check_path(path);

	if (error)
		return error;
	if (strlen(path) + sizeof(".4294967295") > sizeof(copy))
		return error_set(-ENAMETOOLONG, "%s: the file name is too long", path);
	memcpy(copy, path, strlen(path) + 1);
	if (access(dirname(copy), W_OK | X_OK))
		return error_set(-errno, "no flight recording can be written to %s: %s", path,
				 strerror(errno));
	return 0;
}

int flight_create(struct flight **result, const struct collector_options *options,
		  struct collector_kernel *kernel, const struct collector_jit *jit)
{
	struct flight *flight;
	int error = check_place(options->output.path);

	if (error)
		return error;
	flight = calloc(1, sizeof(*flight));
	if (!flight)
		return error_set(-ENOMEM, "no memory for the flight recorder");
	flight->options = options;
	flight->sideband.base.store.account = options->account;
	flight->kernel = kernel;
	flight->jit = jit;
	error = flight_deferred_init(&flight->late, options->rings, options->ring_count);
	if (error)
		flight_destroy(flight);
	else
		*result = flight;
	return error;
}

void flight_destroy(struct flight *flight)
{
	if (!flight)
		return;
	flight_sideband_free(&flight->sideband);
	flight_deferred_free(&flight->late);
	free(flight);
}

uint64_t flight_bytes(const struct flight *flight)
{
	return flight->bytes;
}

int flight_error(const struct flight *flight)
{
	return flight->error ? error_set(flight->error, "%s", flight->message) : 0;
}

/* When all events up to TIME are known. */
static uint64_t known_at(const struct flight *flight, uint64_t time)
{
	return time + (flight->options->sideband_ring_count ? SIDEBAND_DELAY : 0);
}

/* Start of the window before TIME, as far as there is data; 0: all that the rings hold. */
static uint64_t first_of_window(const struct flight *flight, uint64_t time)
{
	const struct flight_options *options = flight->options->flight;

	if (!options->before)
		return flight->boot;
	return time_later(time_before(time, options->before),
			  time_later(options->since, flight->boot));
}

/* The first trigger determines the time of the window. */
static void open_window(struct flight *flight, const struct flight_trigger *trigger)
{
	uint64_t time = trigger->listed.time;

	flight->window = (struct window){
		.due = time_later(known_at(flight, time + trigger->after),
				  time + trigger->patience),
		.by_guest = true,
		.path = trigger->path,
		.flight = { .from = first_of_window(flight, time), .to = time + trigger->after },
	};
}

static bool fits(const struct window *window, const struct flight_trigger *trigger)
{
	return window->flight.count < PERF_DATA_FLIGHT_TRIGGERS && !window->path && !trigger->path;
}

static void add_to_window(struct flight *flight, const struct flight_trigger *trigger)
{
	struct window *window = &flight->window;
	struct perf_data_flight *about = &window->flight;
	uint64_t time = trigger->listed.time, end = time + trigger->after;

	if (!trigger->by_guest) {
		window->by_guest = false;
		window->due = time_later(window->due, known_at(flight, end));
		about->to = time_later(about->to, end);
	}
	about->to = time_later(about->to, time);
	window->numbers[about->count] = trigger->number;
	about->triggers[about->count++] = trigger->listed;
}

static bool next_trigger(struct flight *flight)
{
	const struct flight_options *options = flight->options->flight;

	if (!flight->has_next)
		flight->has_next = options->next_trigger(options->context, &flight->next);
	return flight->has_next;
}

/* Adds pending triggers that fit. False: the window is not open. */
static bool gather(struct flight *flight)
{
	struct window *window = &flight->window;

	while (next_trigger(flight)) {
		if (!window->flight.count)
			open_window(flight, &flight->next);
		else if (!fits(window, &flight->next))
			break;
		add_to_window(flight, &flight->next);
		flight->has_next = false;
	}
	return window->flight.count;
}

/* Errors of a file for one trigger go to its result only. */
static void keep_error(struct flight *flight, int error)
{
	if (!error || flight->error || flight->window.path)
		return;
	flight->error = error;
	snprintf(flight->message, sizeof(flight->message), "%s", error_message());
}

/* Numbers are used up even by files that failed: what there is of those stays. */
static void name_file(struct flight *flight, char *path, size_t size)
{
	const char *first = flight->options->output.path;

	if (flight->window.path)
		snprintf(path, size, "%s", flight->window.path);
	else if (!flight->files++)
		snprintf(path, size, "%s", first);
	else
		snprintf(path, size, "%s.%u", first, flight->files - 1);
}

static void log_result(const struct flight *flight, const struct flight_result *result)
{
	const struct perf_data_flight *about = &flight->window.flight;
	const struct perf_data_flight_trigger *first = &about->triggers[0];

	if (result->error) {
		log_error("no flight recording for %s: %s", first->kind, error_message());
		return;
	}
	log_info("flight recording %s: %" PRIu64 " sample%s before %s%s", result->path,
		 result->samples, result->samples == 1 ? "" : "s", first->kind,
		 about->to > first->time ? " and after" : "");
	if (about->from && about->complete > about->from)
		log_warning(
			"it is complete only for the last %.1f s before: the rings held no more",
			first->time > about->complete
				? (double)(first->time - about->complete) / 1e9
				: 0.0);
}

static void write_window(struct flight *flight, struct flight_result *result)
{
	struct flight_dump dump = {
		.options = flight->options,
		.kernel = flight->kernel,
		.sideband = &flight->sideband,
		.late = &flight->late,
		.jit_code = flight->jit ? flight->jit->code : NULL,
		.path = result->path,
		.flight = &flight->window.flight,
	};

	result->error = flight_dump(&dump);
	result->samples = dump.samples;
	result->bytes = dump.bytes;
	flight->bytes += dump.bytes;
	keep_error(flight, result->error);
}

/* From now on the guest's triggers are only counted. */
static bool refuse(struct flight *flight)
{
	const struct window *window = &flight->window;
	unsigned int most = flight->options->flight->by_guest_max;

	if (!window->by_guest || flight->by_guest++ < most)
		return false;
	if (!flight->refused)
		log_warning("the guest has caused %u flight recordings: no more are written for it",
			    most);
	flight->refused += window->flight.count;
	return true;
}

static void close_window(struct flight *flight)
{
	const struct flight_options *options = flight->options->flight;
	struct window *window = &flight->window;
	char path[PATH_MAX] = "";
	struct flight_result result = {
		.numbers = window->numbers,
		.count = window->flight.count,
		.path = path,
	};

	window->flight.missed = options->missed(options->context) + flight->refused;
	if (refuse(flight)) {
		result.error =
			error_set(-EDQUOT, "the guest has caused too many flight recordings");
	} else {
		name_file(flight, path, sizeof(path));
		write_window(flight, &result);
		log_result(flight, &result);
	}
	options->done(options->context, &result);
	window->flight.count = 0;
}

void flight_sideband(struct flight *flight, const struct sideband *record)
{
	THREAD_CHECK(&flight->thread);
	if (record->time <= now() + SIDEBAND_MARGIN)
		flight_sideband_keep(&flight->sideband, record);
	else /* impossible: it would make other sources' records look late */
		flight->sideband.missed++;
}

void flight_complete(struct flight *flight, size_t ring, const struct sample *sample)
{
	THREAD_CHECK(&flight->thread);
	flight_deferred_keep(&flight->late, ring, sample);
}

/* No file will have samples from before this. */
static uint64_t oldest_needed(const struct flight *flight)
{
	uint64_t span = flight->options->flight->before;
	uint64_t oldest = span ? time_before(now(), span) : flight_oldest(flight->options);

	if (flight->window.flight.count && flight->window.flight.from < oldest)
		oldest = flight->window.flight.from;
	if (flight->has_next && time_before(flight->next.listed.time, span) < oldest)
		oldest = time_before(flight->next.listed.time, span);
	return time_before(oldest, SIDEBAND_MARGIN);
}

void flight_update(struct flight *flight)
{
	THREAD_CHECK(&flight->thread);
	if (flight_sideband_is_due(&flight->sideband))
		flight_sideband_advance(&flight->sideband, oldest_needed(flight));
	if (gather(flight) && now() >= flight->window.due)
		close_window(flight);
}

bool flight_waits(const struct flight *flight)
{
	return flight->window.flight.count || flight->has_next;
}

/* The window gets what there is of the time after its triggers. */
static void cut_window(struct window *window)
{
	const struct perf_data_flight_trigger *last =
		&window->flight.triggers[window->flight.count - 1];
	uint64_t end = time_later(now(), last->time);

	if (window->flight.to > end)
		window->flight.to = end;
}

void flight_begin_boot(struct flight *flight)
{
	uint64_t missed = flight->sideband.missed;

	THREAD_CHECK(&flight->thread);
	flight_end(flight);
	flight_sideband_free(&flight->sideband); /* its processes have ended */
	flight->sideband.missed = missed;
	flight->boot = now();
}

void flight_end(struct flight *flight)
{
	THREAD_CHECK(&flight->thread);
	while (gather(flight)) {
		cut_window(&flight->window);
		close_window(flight);
	}
}
