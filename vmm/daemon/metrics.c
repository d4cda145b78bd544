/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/daemon/domain_name.h"
#include "vmm/daemon/metrics_server.h"

#define ENDED_MAX 1024 /* ended domains that are still exported */

/* struct metrics_values as an array. */
#define COUNTERS       (sizeof(struct metrics_values) / sizeof(uint64_t))
#define COUNTER(field) (offsetof(struct metrics_values, field) / sizeof(uint64_t))

struct metrics_domain {
	struct metrics_domain *next;
	char label[DOMAIN_FILE_SIZE];
	unsigned int requests;      /* profiles that were added and not removed */
	const char *backend;        /* NULL: no session */
	uint64_t earlier[COUNTERS]; /* of ended sessions; written by the session's thread with the
				       lock held */
	_Atomic uint64_t counted[COUNTERS]; /* of all sessions */
	uint64_t ended;                     /* sequence number of its end */
};

struct metrics {
	struct metrics_options options;
	struct metrics_server *server;  /* NULL: not listening */
	pthread_mutex_t lock;           /* protects what follows */
	struct metrics_domain *domains; /* owned */
	uint64_t ends;
};

/* One value per domain. */
static const struct series {
	const char *name, *labels, *type, *help;
	size_t counter;
	bool seconds; /* counted in ns, exported in s */
} series[] = {
	{ "kvmscope_samples_total", ",where=\"guest\"", "counter",
	  "Samples in the guest and outside of it.", COUNTER(guest), false },
	{ "kvmscope_samples_total", ",where=\"host\"", NULL, NULL, COUNTER(host), false },
	{ "kvmscope_lost_samples_total", "", "counter",
	  "Samples that were lost before they were recorded.", COUNTER(lost), false },
	{ "kvmscope_sampling_seconds_total", "", "counter", "CPU time that sampling cost.",
	  COUNTER(cost), true },
	{ "kvmscope_stops_total", "", "counter", "Stops of vCPUs for samples.", COUNTER(stops),
	  false },
	{ "kvmscope_stopped_seconds_total", "", "counter",
	  "Time that vCPUs were stopped for samples.", COUNTER(stopped), true },
	{ "kvmscope_recorded_bytes_total", "", "counter", "Bytes written to recordings.",
	  COUNTER(bytes), false },
	{ "kvmscope_vcpu_seconds_total", ",state=\"running\"", "counter",
	  "Wall time of sampled vCPUs: on a CPU, waiting for one, and asleep.", COUNTER(running),
	  true },
	{ "kvmscope_vcpu_seconds_total", ",state=\"waiting\"", NULL, NULL, COUNTER(waiting), true },
	{ "kvmscope_vcpu_seconds_total", ",state=\"asleep\"", NULL, NULL, COUNTER(asleep), true },
};

static void put_header(FILE *to, const char *name, const char *type, const char *help)
{
	fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_plain(FILE *to, const char *name, const char *type, const char *help,
		      uint64_t value)
{
	put_header(to, name, type, help);
	fprintf(to, "%s %" PRIu64 "\n", name, value);
}

/* A label is a domain's file name: nothing in it needs escaping, and no two domains share one. */
static void put_value(FILE *to, const struct series *what, const struct metrics_domain *domain)
{
	uint64_t value = atomic_load(&domain->counted[what->counter]);

	fprintf(to, "%s{domain=\"%s\"%s} ", what->name, domain->label, what->labels);
	if (what->seconds)
		fprintf(to, "%" PRIu64 ".%09" PRIu64 "\n", value / NS_PER_S, value % NS_PER_S);
	else
		fprintf(to, "%" PRIu64 "\n", value);
}

static void put_domains(FILE *to, const struct metrics *metrics)
{
	put_header(to, "kvmscope_domain_requested", "gauge",
		   "1 for each running domain whose profile is requested.");
	for (const struct metrics_domain *domain = metrics->domains; domain; domain = domain->next)
		if (domain->requests)
			fprintf(to, "kvmscope_domain_requested{domain=\"%s\"} 1\n", domain->label);
	put_header(to, "kvmscope_domain_sampled", "gauge",
		   "1 for each domain that is being sampled, with its backend.");
	for (const struct metrics_domain *domain = metrics->domains; domain; domain = domain->next)
		if (domain->backend)
			fprintf(to, "kvmscope_domain_sampled{domain=\"%s\",backend=\"%s\"} 1\n",
				domain->label, domain->backend);
	for (size_t i = 0; i < sizeof(series) / sizeof(*series); i++) {
		if (series[i].help)
			put_header(to, series[i].name, series[i].type, series[i].help);
		for (const struct metrics_domain *domain = metrics->domains; domain;
		     domain = domain->next)
			put_value(to, &series[i], domain);
	}
}

struct plain {
	const char *name, *help;
	bool gauge; /* else a counter */
	size_t offset;
};

#define RECORDINGS(field) offsetof(struct recordings_statistics, field)
#define PUSH(field)       offsetof(struct push_statistics, field)

static const struct plain recordings_series[] = {
	{ "kvmscope_recording_files", "Complete recordings of all domains.", true,
	  RECORDINGS(files) },
	{ "kvmscope_recording_bytes", "Their size.", true, RECORDINGS(bytes) },
	{ "kvmscope_recordings_free_bytes", "Free space on the file system of the recordings.",
	  true, RECORDINGS(free) },
	{ "kvmscope_recordings_reserve_bytes", "Free space that recordings leave.", true,
	  RECORDINGS(reserve) },
	{ "kvmscope_recordings_removed_total", "Recordings removed for their age or size.", false,
	  RECORDINGS(removed) },
	{ "kvmscope_recordings_sacrificed_total",
	  "Recordings removed because the file system had no space.", false,
	  RECORDINGS(sacrificed) },
	{ "kvmscope_recordings_dropped_total", "Recordings that could not be completed.", false,
	  RECORDINGS(dropped) },
	{ "kvmscope_recordings_not_pushed_total", "Recordings removed before they were pushed.",
	  false, RECORDINGS(not_handed_on) },
	{ "kvmscope_names_bytes", "Size of the symbols of all domains.", true,
	  RECORDINGS(symbols) },
	{ "kvmscope_names_removed_total",
	  "Kernels, programs and libraries whose symbols were removed, as no recording needed them.",
	  false, RECORDINGS(symbols_removed) },
	{ 0 },
};

static const struct plain push_series[] = {
	{ "kvmscope_push_profiles_total", "Profiles that the store accepted.", false,
	  PUSH(pushed) },
	{ "kvmscope_push_bytes_total", "Their size.", false, PUSH(bytes) },
	{ "kvmscope_push_failures_total", "Failed attempts to push.", false, PUSH(failures) },
	{ "kvmscope_push_refused_total", "Profiles dropped because the store refused them.", false,
	  PUSH(refused) },
	{ "kvmscope_push_unreadable_total",
	  "Recordings that could not be read, or not within their CPU time.", false,
	  PUSH(unreadable) },
	{ "kvmscope_push_dropped_total", "Profiles dropped because the spool was full.", false,
	  PUSH(dropped) },
	{ "kvmscope_push_spool_files", "Profiles that wait to be pushed.", true, PUSH(spooled) },
	{ "kvmscope_push_spool_bytes", "Their size.", true, PUSH(spooled_bytes) },
	{ 0 },
};

static void put_all(FILE *to, const struct plain *all, const void *counts)
{
	for (; all->name; all++) {
		uint64_t value;

		memcpy(&value, (const char *)counts + all->offset, sizeof(value));
		put_plain(to, all->name, all->gauge ? "gauge" : "counter", all->help, value);
	}
}

/* The resources of the daemon, with the names that all exporters use. */
static void put_process(FILE *to)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long long pages = 0;
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	put_header(to, "process_cpu_seconds_total", "counter", "CPU time that kvmscoped has used.");
	fprintf(to, "process_cpu_seconds_total %lld.%09ld\n", (long long)used.tv_sec, used.tv_nsec);
	if (file && fscanf(file, "%*u %llu", &pages) == 1)
		put_plain(to, "process_resident_memory_bytes", "gauge",
			  "Memory that kvmscoped uses.", pages * (uint64_t)sysconf(_SC_PAGESIZE));
	if (file)
		fclose(file);
}

/* The caller's to free; NULL without memory. */
static char *make_text(void *context, size_t *size)
{
	struct metrics *metrics = context;
	struct recordings_statistics recordings;
	struct push_statistics push;
	char *text = NULL;
	FILE *to = open_memstream(&text, size);

	if (!to)
		return NULL;
	put_header(to, "kvmscope_build_info", "gauge", "1, and the version.");
	fprintf(to, "kvmscope_build_info{version=\"%s\"} 1\n", KVMSCOPE_VERSION);
	put_process(to);
	pthread_mutex_lock(&metrics->lock);
	put_domains(to, metrics);
	pthread_mutex_unlock(&metrics->lock);
	if (metrics->options.recordings) {
		recordings_statistics(metrics->options.recordings, &recordings);
		put_all(to, recordings_series, &recordings);
	}
	if (metrics->options.push) {
		push_statistics(metrics->options.push, &push);
		put_all(to, push_series, &push);
	}
	if (!fclose(to))
		return text;
	free(text);
	return NULL;
}

int metrics_start(struct metrics **result, const struct metrics_options *options)
{
	struct metrics *metrics = calloc(1, sizeof(*metrics));
	const struct metrics_server_options server = { .listen = options->listen,
						       .patience_ms = options->patience_ms,
						       .text = make_text,
						       .context = metrics };
	int error = 0;

	if (!metrics)
		return error_set(-ENOMEM, "no memory for metrics");
	metrics->options = *options;
	pthread_mutex_init(&metrics->lock, NULL);
	if (options->listen)
		error = metrics_server_start(&metrics->server, &server);
	if (error)
		metrics_stop(metrics);
	else
		*result = metrics;
	return error;
}

void metrics_stop(struct metrics *metrics)
{
	if (!metrics)
		return;
	metrics_server_stop(metrics->server);
	while (metrics->domains) {
		struct metrics_domain *domain = metrics->domains;

		metrics->domains = domain->next;
		free(domain);
	}
	pthread_mutex_destroy(&metrics->lock);
	free(metrics);
}

uint16_t metrics_port(const struct metrics *metrics)
{
	return metrics->server ? metrics_server_port(metrics->server) : 0;
}

static struct metrics_domain *find(const struct metrics *metrics, const char *label)
{
	struct metrics_domain *domain = metrics->domains;

	while (domain && strcmp(domain->label, label) != 0)
		domain = domain->next;
	return domain;
}

struct metrics_domain *metrics_add(struct metrics *metrics, const char *name)
{
	struct metrics_domain *domain;
	char label[DOMAIN_FILE_SIZE];

	domain_name_escape(name, label);
	pthread_mutex_lock(&metrics->lock);
	domain = find(metrics, label);
	if (!domain && (domain = calloc(1, sizeof(*domain)))) {
		snprintf(domain->label, sizeof(domain->label), "%s", label);
		domain->next = metrics->domains;
		metrics->domains = domain;
	}
	if (domain)
		domain->requests++;
	pthread_mutex_unlock(&metrics->lock);
	return domain;
}

void metrics_session_start(struct metrics *metrics, struct metrics_domain *domain,
			   const char *backend)
{
	if (!domain)
		return;
	pthread_mutex_lock(&metrics->lock);
	domain->backend = backend;
	for (size_t i = 0; i < COUNTERS; i++)
		domain->earlier[i] = atomic_load(&domain->counted[i]);
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_session_end(struct metrics *metrics, struct metrics_domain *domain)
{
	if (!domain)
		return;
	pthread_mutex_lock(&metrics->lock);
	domain->backend = NULL;
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_set(struct metrics_domain *domain, const struct metrics_values *values)
{
	uint64_t counts[COUNTERS];

	if (!domain)
		return;
	memcpy(counts, values, sizeof(counts));
	for (size_t i = 0; i < COUNTERS; i++) {
		counts[i] += domain->earlier[i];
		if (counts[i] > atomic_load(&domain->counted[i]))
			atomic_store(&domain->counted[i], counts[i]);
	}
}

/* Drops the domain whose profile ended first if there are too many of them. */
static void drop_one(struct metrics *metrics)
{
	struct metrics_domain **oldest = NULL, *domain;
	size_t ended = 0;

	for (struct metrics_domain **link = &metrics->domains; *link; link = &(*link)->next) {
		if ((*link)->requests)
			continue;
		ended++;
		if (!oldest || (*link)->ended < (*oldest)->ended)
			oldest = link;
	}
	if (ended <= ENDED_MAX)
		return;
	domain = *oldest;
	*oldest = domain->next;
	free(domain);
}

void metrics_remove(struct metrics *metrics, struct metrics_domain *domain)
{
	if (!domain)
		return;
	pthread_mutex_lock(&metrics->lock);
	if (!--domain->requests) {
		domain->ended = ++metrics->ends;
		drop_one(metrics);
	}
	pthread_mutex_unlock(&metrics->lock);
}
