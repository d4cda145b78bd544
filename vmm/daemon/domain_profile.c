/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/domain_profile.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "shared/thread_start.h"
#include "vmm/daemon/conf.h"
#include "vmm/daemon/domain_name.h"
#include "vmm/session/attach_source.h"
#include "vmm/session/event_options.h"

/* ms between two attempts to attach; doubled each time. */
#define RETRY_MIN 200
#define RETRY_MAX 60000
/* ms between two updates of the metrics. */
#define METRICS_INTERVAL 5000
/* Failures that are not logged: a VM that is just starting has no vCPUs. */
#define QUIET_ATTEMPTS 3
/* Bytes of each vCPU's ring: some seconds at the usual frequencies. */
#define RING_SIZE_USUAL (128ul << 10)
/* Files that a guest may cause; no trigger is a guest's here. */
#define FLIGHT_MAX 16
/* Name of the flight recorder's files among the recordings. */
#define FLIGHT_PREFIX "flight-"

struct domain_profile {
	char *name;
	const char *uri;
	struct domain_profile_info info;
	int pid_fd;
	struct recordings *recordings;
	struct metrics *metrics;
	int ended_fd;
	pthread_t thread;
	bool started;
	int stop_fd; /* eventfd */
	atomic_bool stop, ended, leaving;

	/* Used by the thread only. */
	struct thread_check owner;
	struct attach *attach;
	struct image_parser *parser;
	struct recording *recording;
	struct metrics_domain *counted;
	bool failure_logged, refusal_logged;
	unsigned int failures; /* since the domain was sampled last */
	char flight_path[PATH_MAX];
	struct perf_data_watches events; /* of the session after its clock */

	pthread_mutex_t lock; /* protects what follows */
	enum domain_profile_state state;
	char message[ERROR_MESSAGE_SIZE]; /* of the latest failure, "" once it is sampled again */
	struct session *session;          /* being sampled, with attach and recording; or NULL */
	struct flight_requests *flight;   /* of the session, or NULL */
	struct collector_statistics earlier; /* of sessions that have ended */
};

const struct domain_profile_info *domain_profile_info(const struct domain_profile *domain)
{
	return &domain->info;
}

static void set_state(struct domain_profile *domain, enum domain_profile_state state,
		      const char *message)
{
	pthread_mutex_lock(&domain->lock);
	domain->state = state;
	snprintf(domain->message, sizeof(domain->message), "%s", message);
	pthread_mutex_unlock(&domain->lock);
}

/* Not by the pid, which may have been reused. */
static bool process_runs(const struct domain_profile *domain)
{
	struct pollfd process = { .fd = domain->pid_fd, .events = POLLIN };

	return poll(&process, 1, 0) == 0;
}

/* One session. */

static int create_flight(struct domain_profile *domain, struct session_options *session,
			 struct attach_options *attach)
{
	const struct domain_settings *settings = &domain->info.settings;
	const struct flight_requests_options flight = {
		.before = settings->flight,
		.delay = ATTACH_SOURCE_DELAY,
		.by_guest_max = FLIGHT_MAX,
	};
	struct flight_requests *requests = NULL;
	int error;

	if (settings->outside) /* not tested together */
		return error_set(-ENOTSUP, "events kvm:exit and kvm:off-cpu exclude flight");
	error = flight_ring_size(settings->flight, settings->frequency, settings->callchains,
				 &attach->ring_size);

	if (!error)
		error = flight_requests_create(&requests, &flight);
	if (error)
		return error;
	pthread_mutex_lock(&domain->lock);
	domain->flight = requests;
	pthread_mutex_unlock(&domain->lock);
	snprintf(domain->flight_path, sizeof(domain->flight_path),
		 "%s/" FLIGHT_PREFIX "%lld.perf.data", recording_directory(domain->recording),
		 (long long)time(NULL));
	session->output = domain->flight_path;
	session->room = recording_files(domain->recording)->room;
	session->flight = flight_requests_options_of(requests);
	attach->overwrite = true;
	return 0;
}

/* Whoever may define domains can ask for a ring of each vCPU. */
static int check_flight_memory(const struct domain_profile *domain, size_t ring_size)
{
	size_t vcpus = attach_process(domain->attach)->vcpu_count;
	uint64_t needed = vcpus * (uint64_t)ring_size, most = domain->info.settings.flight_memory;

	if (!domain->info.settings.flight || !most || needed <= most)
		return 0;
	return error_set(
		-E2BIG,
		"its flight recorder needs %llu KiB for %zu vCPUs, and flight-memory-max in " CONF_PATH
		" allows %llu KiB: a shorter time or a lower frequency needs less",
		(unsigned long long)needed >> 10, vcpus, (unsigned long long)most >> 10);
}

static void log_refusal(struct domain_profile *domain, const char *message)
{
	if (!domain->refusal_logged)
		log_warning("domain %s: sampled without kvm:exit and kvm:off-cpu: %s",
			    domain->info.shown, message);
	domain->refusal_logged = true;
}

/* Only BPF has events of time outside; if it refuses, OPTIONS loses them. BPF also refuses a VM
 * that is just starting, so it is tried again once the process is known to have one. */
static int open_attach(struct domain_profile *domain, struct attach_options *options)
{
	struct attach_options by_bpf = *options;
	char message[ERROR_MESSAGE_SIZE];
	int error = 0;

	if (!options->outside)
		return attach_open(&domain->attach, options);
	if (!strcmp(options->backend, "auto"))
		by_bpf.backend = "bpf";
	options->outside = 0;
	for (int tries = 0; tries < 2 && !error; tries++) {
		attach_close(domain->attach);
		domain->attach = NULL;
		if (!attach_open(&domain->attach, &by_bpf)) {
			options->outside = by_bpf.outside;
			return 0;
		}
		snprintf(message, sizeof(message), "%s", error_message());
		error = attach_open(&domain->attach, options);
	}
	if (!error)
		log_refusal(domain, message);
	return error;
}

static int attach_to(struct domain_profile *domain, struct attach_options *options)
{
	int error = open_attach(domain, options);

	if (!error)
		error = check_flight_memory(domain, options->ring_size);
	if (!error && !process_runs(domain))
		error = error_set(-ESRCH, "process %d has ended", domain->info.pid);
	return error;
}

static int open_session(struct domain_profile *domain, struct session **session)
{
	const struct domain_settings *settings = &domain->info.settings;
	struct attach_options attach = {
		.pid = domain->info.pid,
		.monitor = { .domain = domain->name, .uri = domain->uri },
		.backend = settings->backend,
		.event = settings->cycles ? ATTACH_CYCLES : ATTACH_CLOCK,
		.outside = settings->outside,
		.frequency = settings->frequency,
		.callchains = settings->callchains,
		.ring_size = RING_SIZE_USUAL,
	};
	struct session_options options = { .perspective = PERSPECTIVE_GUEST,
					   .callchains = settings->callchains,
					   .command_line = "kvmscoped",
					   .buildid_cache = true,
					   .guest_memory = GUEST_ACCOUNT_DEFAULT };
	/* Another one would need further capabilities. */
	const struct image_parser_user parser = { geteuid(), getegid() };
	struct session_agent_options agent;
	int error = recordings_add(domain->recordings, domain->name, &domain->recording);

	if (error)
		return error;
	options.cache = recording_symbols(domain->recording);
	if (settings->flight)
		error = create_flight(domain, &options, &attach);
	else
		options.files = recording_files(domain->recording);
	if (!error)
		error = attach_to(domain, &attach);
	if (error)
		return error;
	error = image_parser_start(&domain->parser, &parser, NULL);
	if (error)
		return error;
	domain->events = (struct perf_data_watches){ 0 };
	event_options_list(attach.outside, &domain->events);
	if (attach.outside)
		options.events = &domain->events;
	options.parser = domain->parser;
	options.source = attach_source(domain->attach);
	if (settings->agent && attach_source_agent(domain->attach, NULL, &agent))
		options.agent = &agent;
	error = session_open(session, &options);
	return error ? error : session_start(*session);
}

static void show_session(struct domain_profile *domain, struct session *session)
{
	const struct attach *attach = domain->attach;

	pthread_mutex_lock(&domain->lock);
	domain->session = session;
	domain->state = DOMAIN_SAMPLING;
	pthread_mutex_unlock(&domain->lock);
	metrics_session_start(domain->metrics, domain->counted, attach_backend(attach)->name);
	log_info("domain %s: process %d, %zu vCPU%s, by %s at %u Hz%s", domain->info.shown,
		 domain->info.pid, attach_process(attach)->vcpu_count,
		 attach_process(attach)->vcpu_count == 1 ? "" : "s", attach_backend(attach)->name,
		 domain->info.settings.frequency,
		 domain->info.settings.flight ? ", flight recorder" : "");
}

static void update_metrics(struct domain_profile *domain,
			   const struct collector_statistics *statistics)
{
	struct attach_statistics attach;
	struct metrics_values values = {
		.guest = statistics->samples - statistics->host,
		.host = statistics->host,
		.lost = statistics->lost,
		.cost = statistics->cost,
		.bytes = statistics->bytes,
	};

	attach_statistics(domain->attach, &attach);
	values.stops = attach.stops.count;
	values.stopped = attach.stops.total;
	values.running = attach.times.ns[VCPU_RUNNING];
	values.waiting = attach.times.ns[VCPU_WAITING];
	values.asleep = attach.times.ns[VCPU_ASLEEP];
	metrics_set(domain->counted, &values);
}

/* Only once the domain is sampled: attaching may succeed before the next failure. */
static void forget_failures(struct domain_profile *domain)
{
	domain->failure_logged = false;
	domain->failures = 0;
	pthread_mutex_lock(&domain->lock);
	*domain->message = '\0';
	pthread_mutex_unlock(&domain->lock);
}

/* Runs until the VM has ended or the domain is stopped. Returns an error of sampling. */
static int follow_session(struct domain_profile *domain, struct session *session)
{
	struct pollfd events[] = {
		{ .fd = session_fd(session), .events = POLLIN },
		{ .fd = domain->stop_fd, .events = POLLIN },
	};
	int state = SESSION_SEARCHING;

	while (state >= 0 && state != SESSION_ENDED && !atomic_load(&domain->stop)) {
		struct collector_statistics statistics;

		if (poll(events, 2, METRICS_INTERVAL) < 0)
			continue;
		state = session_turn(session);
		if (state == SESSION_SAMPLING && domain->failures)
			forget_failures(domain);
		session_statistics(session, &statistics);
		update_metrics(domain, &statistics);
		recording_prune_symbols(domain->recording);
	}
	return state < 0 ? state : 0;
}

static void add_statistics(struct collector_statistics *sum, const struct collector_statistics *one)
{
	sum->samples += one->samples;
	sum->readable += one->readable;
	sum->host += one->host;
	sum->kernel += one->kernel;
	sum->lost += one->lost;
	sum->bytes += one->bytes;
	sum->cost += one->cost;
	sum->weight += one->weight;
	sum->files += one->files;
	sum->kernel_found = one->kernel_found;
	memcpy(sum->release, one->release, sizeof(sum->release));
}

/* Hides the flight recorder from other threads before it is destroyed. */
static void close_session(struct domain_profile *domain, struct session *session)
{
	struct flight_requests *flight;

	session_close(session);
	image_parser_end(domain->parser);
	domain->parser = NULL;
	attach_close(domain->attach);
	domain->attach = NULL;
	pthread_mutex_lock(&domain->lock);
	flight = domain->flight;
	domain->flight = NULL;
	pthread_mutex_unlock(&domain->lock);
	flight_requests_destroy(flight);
	if (domain->recording)
		recordings_remove(domain->recordings, domain->recording);
	domain->recording = NULL;
}

static int end_session(struct domain_profile *domain, struct session *session, int error)
{
	char message[ERROR_MESSAGE_SIZE] = "";
	struct collector_statistics statistics;
	int stopped;

	if (error)
		snprintf(message, sizeof(message), "%s", error_message());
	pthread_mutex_lock(&domain->lock);
	domain->session = NULL;
	pthread_mutex_unlock(&domain->lock);
	stopped = session_stop(session, &statistics);
	update_metrics(domain, &statistics);
	metrics_session_end(domain->metrics, domain->counted);
	pthread_mutex_lock(&domain->lock);
	add_statistics(&domain->earlier, &statistics);
	pthread_mutex_unlock(&domain->lock);
	return error ? error_set(error, "%s", message) : stopped;
}

static int run_session(struct domain_profile *domain)
{
	struct session *session = NULL;
	int error;

	THREAD_CHECK(&domain->owner);
	error = open_session(domain, &session);
	if (!error) {
		show_session(domain, session);
		error = end_session(domain, session, follow_session(domain, session));
	}
	close_session(domain, session);
	return error;
}

/* The thread. */

/* A domain that waits for the end of its previous session (-EBUSY) has not failed. */
static void log_failure(struct domain_profile *domain, int error)
{
	bool known = domain->failure_logged && !strcmp(domain->message, error_message());

	THREAD_CHECK(&domain->owner);
	if (++domain->failures <= QUIET_ATTEMPTS || error == -EBUSY)
		log_debug("domain %s: %s", domain->info.shown, error_message());
	else if (!known)
		log_warning("domain %s cannot be profiled now: %s", domain->info.shown,
			    error_message());
	domain->failure_logged = domain->failures > QUIET_ATTEMPTS;
	set_state(domain, DOMAIN_WAITING, error_message());
}

/* Waits; less if the domain is stopped or its process ends. */
static void wait_to_retry(const struct domain_profile *domain, int milliseconds)
{
	struct pollfd events[] = {
		{ .fd = domain->stop_fd, .events = POLLIN },
		{ .fd = domain->pid_fd, .events = POLLIN },
	};

	poll(events, 2, milliseconds);
}

static void *run(void *context)
{
	struct domain_profile *domain = context;
	int pause = RETRY_MIN;

	domain->counted = metrics_add(domain->metrics, domain->name);
	while (!atomic_load(&domain->stop) && process_runs(domain)) {
		int error = run_session(domain);

		if (error && process_runs(domain))
			log_failure(domain, error);
		wait_to_retry(domain, pause);
		pause = !error ? RETRY_MIN : pause > RETRY_MAX / 2 ? RETRY_MAX : 2 * pause;
	}
	metrics_remove(domain->metrics, domain->counted);
	set_state(domain, DOMAIN_ENDED, "");
	atomic_store(&domain->ended, true);
	eventfd_write(domain->ended_fd, 1);
	return NULL;
}

static int start(struct domain_profile *domain)
{
	int error;

	domain->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (domain->stop_fd < 0)
		return error_set(-errno, "cannot create an eventfd: %s", strerror(errno));
	error = thread_start(&domain->thread, "domain", run, domain);
	domain->started = !error;
	return error ? error_set(error, "cannot start a domain's thread: %s", strerror(-error)) : 0;
}

int domain_profile_start(struct domain_profile **result,
			 const struct domain_profile_options *options)
{
	struct domain_profile *domain = calloc(1, sizeof(*domain));
	char *name = strdup(options->name);
	int error;

	if (!domain || !name) {
		free(domain);
		free(name);
		close(options->pid_fd);
		return error_set(-ENOMEM, "no memory for a domain");
	}
	*domain = (struct domain_profile){
		.name = name,
		.uri = options->uri,
		.info = { .name = name, .pid = options->pid, .settings = options->settings },
		.pid_fd = options->pid_fd,
		.recordings = options->recordings,
		.metrics = options->metrics,
		.ended_fd = options->ended_fd,
		.stop_fd = -1,
	};
	domain_name_escape(name, domain->info.shown);
	pthread_mutex_init(&domain->lock, NULL);
	error = start(domain);
	if (error)
		domain_profile_free(domain);
	else
		*result = domain;
	return error;
}

void domain_profile_stop(struct domain_profile *domain)
{
	atomic_store(&domain->stop, true);
	eventfd_write(domain->stop_fd, 1);
}

void domain_profile_set_leaving(struct domain_profile *domain, bool leaving)
{
	atomic_store(&domain->leaving, leaving);
}

bool domain_profile_is_leaving(const struct domain_profile *domain)
{
	return atomic_load(&domain->leaving);
}

bool domain_profile_has_ended(const struct domain_profile *domain)
{
	return atomic_load(&domain->ended);
}

void domain_profile_free(struct domain_profile *domain)
{
	if (!domain)
		return;
	if (domain->started) {
		domain_profile_stop(domain);
		pthread_join(domain->thread, NULL);
	}
	if (domain->stop_fd >= 0)
		close(domain->stop_fd);
	close(domain->pid_fd);
	pthread_mutex_destroy(&domain->lock);
	free(domain->name);
	free(domain);
}

void domain_profile_status(struct domain_profile *domain, struct domain_profile_status *status)
{
	struct collector_statistics present;
	struct attach_statistics attach;
	struct agent_statistics agent;

	*status = (struct domain_profile_status){ 0 };
	pthread_mutex_lock(&domain->lock);
	status->state = domain->state;
	if (domain->state == DOMAIN_WAITING)
		memcpy(status->message, domain->message, sizeof(status->message));
	status->statistics = domain->earlier;
	if (domain->session) {
		session_statistics(domain->session, &present);
		add_statistics(&status->statistics, &present);
		attach_statistics(domain->attach, &attach);
		status->backend = attach_backend(domain->attach)->name;
		status->vcpus = attach.vcpus;
		status->agent = session_agent_statistics(domain->session, &agent)
					? session_agent_word(&agent)
					: NULL;
		status->flight_files = domain->flight ? flight_requests_files(domain->flight) : 0;
	}
	pthread_mutex_unlock(&domain->lock);
}

/* With the lock, and a session. */
static int find_latest(const struct domain_profile *domain, char path[PATH_MAX])
{
	struct collector_statistics statistics;

	if (domain->info.settings.flight)
		return recording_latest(domain->recording, FLIGHT_PREFIX, false, path);
	session_statistics(domain->session, &statistics);
	/* A file that was only just begun has no samples yet; the one before has. */
	return recording_latest(domain->recording, NULL,
				statistics.readable && !statistics.readable_here, path);
}

int domain_profile_latest_file(struct domain_profile *domain, char path[PATH_MAX])
{
	int error;

	pthread_mutex_lock(&domain->lock);
	error = domain->session
			? find_latest(domain, path)
			: error_set(-ENOTSUP, "domain %s is not being sampled", domain->info.shown);
	pthread_mutex_unlock(&domain->lock);
	return error;
}

static int need_flight(const struct domain_profile *domain)
{
	if (!domain->info.settings.flight)
		return error_set(
			-ENOTSUP,
			"domain %s has no flight recorder: everything is recorded; flight=\"30s\" in its "
			"profile adds one",
			domain->info.shown);
	return domain->session && domain->flight
		       ? 0
		       : error_set(-ENOTSUP, "domain %s is not being sampled", domain->info.shown);
}

int domain_profile_dump(struct domain_profile *domain, const char *path, uint64_t after,
			uint64_t *number)
{
	int error;

	pthread_mutex_lock(&domain->lock);
	error = need_flight(domain);
	if (!error)
		error = flight_requests_add(domain->flight, path, after, number);
	pthread_mutex_unlock(&domain->lock);
	return error;
}

int domain_profile_dump_result(struct domain_profile *domain, uint64_t number, json_t *result)
{
	int error;

	pthread_mutex_lock(&domain->lock);
	error = need_flight(domain);
	if (!error)
		error = flight_requests_result(domain->flight, number, result);
	pthread_mutex_unlock(&domain->lock);
	return error;
}
