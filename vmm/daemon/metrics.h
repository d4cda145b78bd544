/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of the daemon for Prometheus: its text format over HTTP, GET /metrics only
 * (https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4). The names are in
 * docs/continuous-profiling.md.
 *
 *	metrics_start() -> metrics_add() for each domain, any time
 *			-> metrics_session_start() -> metrics_session_end(), any number
 *			-> metrics_remove() -> metrics_stop()
 *
 * The server has a thread of its own (metrics_server.h). Any thread may call all functions;
 * metrics_set() takes no lock.
 */
#ifndef KVMSCOPE_DAEMON_METRICS_H
#define KVMSCOPE_DAEMON_METRICS_H

#include <stdint.h>

#include "vmm/daemon/push.h"
#include "vmm/daemon/recordings.h"

struct metrics;
struct metrics_domain;

struct metrics_options {
	const char *listen;            /* as for metrics_listen(); NULL: do not listen */
	struct recordings *recordings; /* must outlive the metrics; NULL: none */
	struct push *push;             /* the same */
	unsigned int patience_ms;      /* of the server, per client; 0: 10 s */
};

/* Counts of one session of a domain, since its start. */
struct metrics_values {
	uint64_t guest, host; /* samples in the guest, and outside of it */
	uint64_t lost;        /* samples */
	uint64_t cost;        /* ns that sampling cost, as far as known */
	uint64_t stops;       /* vCPU stops, of backends that stop them */
	uint64_t stopped;     /* ns that they lasted */
	uint64_t bytes;       /* recorded */
	/* ns of vCPUs: on a CPU, ready to run without one, and asleep */
	uint64_t running, waiting, asleep;
};

/* The errors of metrics_listen(), or -ENOMEM. */
int metrics_start(struct metrics **metrics, const struct metrics_options *options);

/* After all domains were removed. NULL is a no-op. */
void metrics_stop(struct metrics *metrics);

/* For tests: the port it listens at; 0: none. */
uint16_t metrics_port(const struct metrics *metrics);

/* A profile of DOMAIN is requested. A domain may be added again before it is removed. NULL without
 * memory, which the following functions accept. */
struct metrics_domain *metrics_add(struct metrics *metrics, const char *domain);

/* A session, sampled by BACKEND (a static string), has started: its counts add to those of earlier
 * ones. A domain has one at a time. */
void metrics_session_start(struct metrics *metrics, struct metrics_domain *domain,
			   const char *backend);
void metrics_session_end(struct metrics *metrics, struct metrics_domain *domain);

/* Sets the counts of the session so far; a lower count than before is ignored. One thread per
 * domain. */
void metrics_set(struct metrics_domain *domain, const struct metrics_values *values);

/* For each metrics_add(): the profile has ended. The counts of the domain are exported until there
 * are too many such domains. */
void metrics_remove(struct metrics *metrics, struct metrics_domain *domain);

#endif
