/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon counts, for Prometheus: its text format over HTTP, GET /metrics alone
 * (https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4). The names are in
 * docs/continuous-profiling.md.
 *
 *	metrics_start() -> metrics_add() for each domain, any time -> metrics_remove() ->
 *metrics_stop()
 *
 * One thread of libmicrohttpd's answers, a few connections at once and each for a few seconds;
 *whoever asks too much is turned away. All functions may be called on any thread; metrics_set()
 *takes no lock.
 */
#ifndef KVMSCOPE_DAEMON_METRICS_H
#define KVMSCOPE_DAEMON_METRICS_H

#include <stdint.h>

#include "vmm/daemon/push.h"
#include "vmm/daemon/recordings.h"

struct metrics;
struct metrics_domain;

struct metrics_options {
	const char *listen; /* "127.0.0.1:9754", "[::1]:9754"; a port of 0 is any; NULL: nobody is
			       answered */
	struct recordings *recordings; /* outlive the metrics; NULL: there are none */
	struct push *push;             /* the same */
};

/* Of one session of a domain, from its beginning on. */
struct metrics_values {
	uint64_t guest, host; /* samples taken in the guest, and outside of it */
	uint64_t lost;        /* samples */
	uint64_t cost;        /* ns that taking samples cost, as far as it is known */
	uint64_t stops;       /* of vCPUs, by backends that stop them */
	uint64_t stopped;     /* ns that they took */
	uint64_t bytes;       /* recorded */
};

/* The errors of the socket; -EINVAL: listen is no address and port. */
int metrics_start(struct metrics **metrics, const struct metrics_options *options);

/* All domains were removed. Works on NULL. */
void metrics_stop(struct metrics *metrics);

/* For tests: that it listens at; 0: at none. */
uint16_t metrics_port(const struct metrics *metrics);

/*
 * A session of DOMAIN, sampled by BACKEND (a string that stays), has begun: what it counts goes on
 * where the one before ended. NULL without memory, which metrics_set() and metrics_remove() take.
 */
struct metrics_domain *metrics_add(struct metrics *metrics, const char *domain,
				   const char *backend);

/* What the session has counted so far; a count that is smaller than it was stays as it was. One
 * thread for each domain. */
void metrics_set(struct metrics_domain *domain, const struct metrics_values *values);

/* The session has ended. What it counted is told until there are too many such domains. */
void metrics_remove(struct metrics *metrics, struct metrics_domain *domain);

#endif
