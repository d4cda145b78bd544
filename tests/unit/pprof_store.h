/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store for profiles to push to: an HTTP server that takes POST /ingest as Grafana Pyroscope
 * does, keeps what comes, and answers as a test wants it. What Pyroscope would pass over in
 * silence, taking a default of its own instead or leaving it out (pprof_rules.h), it answers with
 * 400.
 */
#ifndef KVMSCOPE_TESTS_UNIT_PPROF_STORE_H
#define KVMSCOPE_TESTS_UNIT_PPROF_STORE_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PPROF_STORE_MAX 256

/* What it took: answered with 200. */
struct pprof_received {
	char name[1024], from[32], until[32], rate[32], spy[32], tenant[64], authorization[128];
	char *profile; /* owned */
	size_t size;
};

struct pprof_store {
	struct MHD_Daemon *daemon; /* NULL: it is down */
	uint16_t port;
	int port_fd; /* bound to it, so that it is nobody else's while it is down */
	const char *certificate,
		*key;         /* PEM: it speaks TLS from the next start on; NULL: it does not */
	atomic_uint status;   /* that it answers with */
	const char *refuses;  /* 422 for what has this in its name; NULL */
	atomic_bool hold;     /* requests are not answered */
	atomic_uint requests; /* that came, whole */
	atomic_uint count;    /* of received */
	pthread_mutex_t lock; /* of received */
	struct pprof_received received[PPROF_STORE_MAX];
};

/* Finds itself a port, and is down. */
void pprof_store_init(struct pprof_store *store);
void pprof_store_start(struct pprof_store *store);
void pprof_store_stop(struct pprof_store *store);
/* Stops it, and forgets what came. */
void pprof_store_free(struct pprof_store *store);

/* Until it has taken COUNT profiles. */
void pprof_store_wait(struct pprof_store *store, unsigned int count);

/* What it took whose name has NEEDLE in it: the first; NULL. */
const struct pprof_received *pprof_store_find(struct pprof_store *store, const char *needle);

#endif
