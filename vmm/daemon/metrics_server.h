/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text over HTTP, GET /metrics only. A thread with libmicrohttpd answers a limited number of
 * clients. Each has some seconds for its request and the answer, and the oldest is dropped for a
 * new one, so slow clients cannot keep others out. A connection is for one request.
 */
#ifndef KVMSCOPE_DAEMON_METRICS_SERVER_H
#define KVMSCOPE_DAEMON_METRICS_SERVER_H

#include <stddef.h>
#include <stdint.h>

#define METRICS_CLIENTS_MAX 16

struct metrics_server;

struct metrics_server_options {
	const char *listen;                         /* as for metrics_listen() */
	unsigned int patience_ms;                   /* per client; 0: the default, 10 s */
	char *(*text)(void *context, size_t *size); /* the server's to free; NULL: no memory */
	void *context;
};

/* The errors of metrics_listen(), or -ENOMEM. */
int metrics_server_start(struct metrics_server **server,
			 const struct metrics_server_options *options);

/* NULL is a no-op. */
void metrics_server_stop(struct metrics_server *server);

uint16_t metrics_server_port(const struct metrics_server *server);

#endif
