/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pmu/pmu_host.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/pmu/pmu_events.h"

__extension__ typedef unsigned __int128 wide;

/* The host's side of one guest counter. */
struct backing {
	int event; /* -1: none is open */
	bool counts;
	struct pmu_request request;   /* of the event, or of the refused one */
	bool refused;                 /* perf could not open the event */
	struct pmu_host_reading seen; /* at the last reading that ended an interval */
	uint64_t counted;             /* total count of this event, scaled */
	uint64_t overflow;            /* value of counted at the overflow */
	uint64_t pending;             /* counted, but not yet consumed */
};

struct pmu_host {
	struct pmu_counters counters;
	const struct pmu_host_perf *perf;
	enum pmu_model model;
	pmu_host_report *report;
	void *context;
	struct pmu_host_statistics statistics;
	struct backing backings[PMU_COUNTERS];
};

static struct perf_event_attr attributes_of(enum pmu_model model, const struct pmu_request *request)
{
	return (struct perf_event_attr){
		.size = sizeof(struct perf_event_attr),
		.type = PERF_TYPE_RAW,
		.config = request->config &
			  (model == PMU_INTEL ? SELECT_CONFIG & ~SELECT_EVENT_HIGH : SELECT_CONFIG),
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
		.exclude_user = !request->user,
		.exclude_kernel = !request->kernel,
		.exclude_host = 1,
		.disabled = 1,
		/* No period of its own: the distance to the first overflow is set when the event
		 * starts. */
		.sample_period = request->interrupt ? UINT64_C(1) << PMU_WIDTH : 0,
		.wakeup_events = request->interrupt,
	};
}

/* perf accepts any number, also architectural events that the processor does not have. */
static bool is_missing(const struct pmu_host *host, uint64_t config)
{
	const int bit = host->model == PMU_INTEL ? pmu_intel_architectural(config) : -1;

	return bit >= 0 && !(host->perf->architectural(host->perf->context) >> bit & 1);
}

static int open_event(const struct pmu_host *host, const struct pmu_request *request)
{
	const struct perf_event_attr attributes = attributes_of(host->model, request);
	const struct pmu_host_perf *perf = host->perf;
	int error, event;

	if (is_missing(host, request->config))
		return -ENOENT;
	event = perf->open(perf->context, &attributes);
	if (event < 0 || !request->interrupt)
		return event;
	error = perf->direct_signal(perf->context, event);
	if (error) {
		perf->close(perf->context, event);
		return error;
	}
	return event;
}

static int try_event(const struct pmu_host *host, uint64_t config)
{
	const struct pmu_request request = { .config = config, .user = true, .kernel = true };
	const int event = open_event(host, &request);

	if (event < 0)
		return event;
	host->perf->close(host->perf->context, event);
	return 0;
}

static bool host_has(void *context, uint64_t config)
{
	return try_event(context, config) == 0;
}

static bool is_same(const struct pmu_request *one, const struct pmu_request *other)
{
	return one->config == other->config && one->user == other->user &&
	       one->kernel == other->kernel && one->interrupt == other->interrupt;
}

static void report_refused(const struct pmu_host *host, uint64_t config, int error)
{
	char message[128];

	(void)snprintf(message, sizeof(message),
		       "perf does not count event %#llx for the guest: %s",
		       (unsigned long long)config, strerror(-error));
	host->report(host->context, message);
}

/* Without the event the counter is derived from run time, or does not advance. */
static void give_up(struct pmu_host *host, struct backing *backing, int error)
{
	if (host->statistics.refused++ == 0)
		report_refused(host, backing->request.config, error);
	if (backing->event >= 0)
		host->perf->close(host->perf->context, backing->event);
	backing->event = -1;
	backing->counts = false;
	backing->refused = true;
}

static int control(const struct pmu_host *host, const struct backing *backing,
		   unsigned long request, uint64_t *argument)
{
	return host->perf->control(host->perf->context, backing->event, request, argument);
}

static uint64_t scale(struct pmu_host *host, uint64_t count, uint64_t enabled, uint64_t running)
{
	if (running >= enabled)
		return count;
	if (host->statistics.scaled++ == 0)
		host->report(host->context,
			     "the guest's PMU shares the host's counters with others: its counts "
			     "are scaled by the time for which it had them");
	return (uint64_t)((wide)count * enabled / running);
}

/* An interval ends at the first reading after the event was on a counter. */
static void read_event(struct pmu_host *host, struct backing *backing)
{
	const struct pmu_host_reading seen = backing->seen;
	struct pmu_host_reading now;
	uint64_t counted;
	const int error = host->perf->read(host->perf->context, backing->event, &now);

	if (error) {
		give_up(host, backing, error);
		return;
	}
	if (now.running == seen.running)
		return;
	counted = scale(host, now.count - seen.count, now.enabled - seen.enabled,
			now.running - seen.running);
	backing->counted += counted;
	backing->pending += counted;
	backing->seen = now;
}

/* Disables the event first, so that nothing is counted after the reading. */
static void stop(struct pmu_host *host, struct backing *backing)
{
	if (!backing->counts)
		return;
	backing->counts = false;
	(void)control(host, backing, PERF_EVENT_IOC_DISABLE, NULL);
	read_event(host, backing);
}

static void start(struct pmu_host *host, struct backing *backing, uint64_t left)
{
	uint64_t period = left < PMU_HOST_PERIOD_MIN ? PMU_HOST_PERIOD_MIN : left;
	int error = 0;

	backing->overflow = backing->counted + left;
	if (backing->request.interrupt)
		error = control(host, backing, PERF_EVENT_IOC_PERIOD, &period);
	if (!error)
		error = control(host, backing, PERF_EVENT_IOC_ENABLE, NULL);
	if (error)
		give_up(host, backing, error);
	else
		backing->counts = true;
}

static void close_event(struct pmu_host *host, struct backing *backing)
{
	struct pmu_host_reading now;

	if (backing->event < 0)
		return;
	stop(host, backing);
	if (backing->event >= 0 && !host->perf->read(host->perf->context, backing->event, &now) &&
	    now.running == backing->seen.running)
		host->statistics.unseen_ns += now.enabled - backing->seen.enabled;
	if (backing->event >= 0)
		host->perf->close(host->perf->context, backing->event);
	backing->event = -1;
}

static void replace_event(struct pmu_host *host, struct backing *backing,
			  const struct pmu_request *request)
{
	int event;

	close_event(host, backing);
	*backing =
		(struct backing){ .event = -1, .request = *request, .pending = backing->pending };
	event = open_event(host, request);
	if (event < 0)
		give_up(host, backing, event);
	else
		backing->event = event;
}

static bool host_set(void *context, unsigned int number, const struct pmu_request *request,
		     uint64_t left)
{
	struct pmu_host *host = context;
	struct backing *backing = &host->backings[number];

	assert(number < PMU_COUNTERS && left > 0);
	if (!request->user && !request->kernel) {
		stop(host, backing);
		return false;
	}
	if (!is_same(&backing->request, request))
		replace_event(host, backing, request);
	else if (backing->counts && request->interrupt &&
		 backing->overflow != backing->counted + left)
		stop(host, backing);
	if (!backing->refused && !backing->counts)
		start(host, backing, left);
	return backing->counts;
}

static uint64_t host_consume(void *context, unsigned int number)
{
	struct pmu_host *host = context;
	struct backing *backing = &host->backings[number];
	uint64_t count;

	if (backing->counts)
		read_event(host, backing);
	count = backing->pending;
	backing->pending = 0;
	return count;
}

int pmu_host_create(struct pmu_host **host, enum pmu_model model, const struct pmu_host_perf *perf,
		    pmu_host_report *report, void *context)
{
	const uint64_t cycles = model == PMU_INTEL ? 0x3c : 0x76;
	struct pmu_host *self = calloc(1, sizeof(*self));
	int error;

	if (!self)
		return error_set(-ENOMEM, "no memory for the guest's PMU");
	self->counters = (struct pmu_counters){
		.has = host_has, .set = host_set, .consume = host_consume, .context = self
	};
	self->perf = perf;
	self->model = model;
	self->report = report;
	self->context = context;
	for (unsigned int i = 0; i < PMU_COUNTERS; i++)
		self->backings[i].event = -1;
	error = try_event(self, cycles);
	if (error) {
		free(self);
		return error_set(
			-ENOTSUP,
			"the host has no performance counters for a guest (perf_event_open of cycles: "
			"%s); set kernel.perf_event_paranoid to at most 1, or grant CAP_PERFMON",
			strerror(-error));
	}
	*host = self;
	return 0;
}

void pmu_host_close_events(struct pmu_host *host)
{
	for (unsigned int i = 0; i < PMU_COUNTERS; i++) {
		close_event(host, &host->backings[i]);
		host->backings[i] = (struct backing){ .event = -1 };
	}
}

void pmu_host_destroy(struct pmu_host *host)
{
	if (!host)
		return;
	pmu_host_close_events(host);
	free(host);
}

const struct pmu_counters *pmu_host_counters(struct pmu_host *host)
{
	return &host->counters;
}

void pmu_host_statistics(const struct pmu_host *host, struct pmu_host_statistics *statistics)
{
	*statistics = host->statistics;
}
