/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store to which profiles are pushed: an HTTP server that handles POST /ingest like Grafana
 * Pyroscope, or POST /v1development/profiles of OTLP, keeps what it receives, and answers as the
 * test specifies. It answers 400 where Pyroscope would silently use a default or drop data
 * (pprof_rules.h).
 */
#ifndef KVMSCOPE_TESTS_UNIT_PPROF_STORE_H
#define KVMSCOPE_TESTS_UNIT_PPROF_STORE_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PPROF_STORE_MAX 256

/* A profile that was answered with 200. */
struct pprof_received {
	char name[1024], from[32], until[32], rate[32], spy[32], tenant[64], authorization[128];
	char *profile; /* owned */
	size_t size;
};

struct pprof_store {
	struct MHD_Daemon *daemon; /* NULL: it is down */
	uint16_t port;
	int port_fd; /* a socket bound to it, which reserves it while it is down */
	const char *certificate, *key; /* PEM: uses TLS from the next start on; NULL: no TLS */
	atomic_uint status;            /* the status of its answers */
	bool otlp;                     /* profiles are bodies, as OTLP has them */
	const char *answer;            /* body of its answers; NULL: a text */
	size_t answer_size;
	const char *refuses;  /* 422 for profiles with this in their names; NULL: none */
	atomic_bool hold;     /* requests are not answered */
	atomic_uint requests; /* complete requests received */
	atomic_uint count;    /* of received */
	pthread_mutex_t lock; /* of received */
	struct pprof_received received[PPROF_STORE_MAX];
};

/* Chooses a port. It is down at first. */
void pprof_store_init(struct pprof_store *store);
void pprof_store_start(struct pprof_store *store);
void pprof_store_stop(struct pprof_store *store);
/* Stops it and discards what it received. */
void pprof_store_free(struct pprof_store *store);

/* Waits until it has accepted COUNT profiles. */
void pprof_store_wait(struct pprof_store *store, unsigned int count);

/* The first accepted profile whose name contains NEEDLE, or NULL. */
const struct pprof_received *pprof_store_find(struct pprof_store *store, const char *needle);

#endif
