/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/metrics_server.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/thread_start.h"
#include "vmm/daemon/metrics_listen.h"

#define PATIENCE_MS 10000
#define REQUEST_MAX 16384 /* bytes of memory per connection */
#define TYPE        "text/plain; version=0.0.4; charset=utf-8"
/* libmicrohttpd may accept several before it closes those that were dropped. */
enum { ACCEPTED_MAX = 2 * METRICS_CLIENTS_MAX };

struct client {
	int fd;         /* libmicrohttpd's; -1: unused */
	uint64_t since; /* ns, of its connection */
	bool dropped;   /* will be closed */
};

struct metrics_server {
	struct metrics_server_options options;
	struct MHD_Daemon *daemon;
	int stop_fd; /* eventfd; -1: none */
	pthread_t thread;
	bool started;
	struct client clients[ACCEPTED_MAX]; /* used by the thread */
};

/* Clients */

/* libmicrohttpd sees the end of its connection and closes it. */
static void drop(struct client *client)
{
	client->dropped = true;
	shutdown(client->fd, SHUT_RDWR);
}

/* NULL: none that is not dropped. */
static struct client *oldest_client(struct metrics_server *server, unsigned int *count)
{
	struct client *oldest = NULL;

	*count = 0;
	for (size_t i = 0; i < ACCEPTED_MAX; i++) {
		struct client *client = &server->clients[i];

		if (client->fd < 0 || client->dropped)
			continue;
		++*count;
		if (!oldest || client->since < oldest->since)
			oldest = client;
	}
	return oldest;
}

static struct client *unused_client(struct metrics_server *server)
{
	for (size_t i = 0; i < ACCEPTED_MAX; i++)
		if (server->clients[i].fd < 0)
			return &server->clients[i];
	return NULL;
}

static void note_connection(void *context, struct MHD_Connection *connection, void **client,
			    enum MHD_ConnectionNotificationCode code)
{
	struct metrics_server *server = context;
	struct client *oldest, *new;
	unsigned int count;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (*client)
			((struct client *)*client)->fd = -1;
		return;
	}
	oldest = oldest_client(server, &count);
	if (count >= METRICS_CLIENTS_MAX)
		drop(oldest);
	new = unused_client(server);
	if (new)
		*new = (struct client){ MHD_get_connection_info(connection,
								MHD_CONNECTION_INFO_CONNECTION_FD)
						->connect_fd,
					clock_ns(CLOCK_MONOTONIC), false };
	*client = new;
}

/* Drops the clients whose time is over; returns the ms until the next one's is, -1: none. */
static int drop_late(struct metrics_server *server)
{
	const uint64_t now = clock_ns(CLOCK_MONOTONIC),
		       patience = server->options.patience_ms * NS_PER_MS;
	struct client *oldest;
	unsigned int count;

	while ((oldest = oldest_client(server, &count))) {
		if (now < oldest->since + patience)
			return (int)((oldest->since + patience - now) / NS_PER_MS) + 1;
		drop(oldest);
	}
	return -1;
}

/* Answers */

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned int status,
			     struct MHD_Response *response)
{
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
				status == MHD_HTTP_OK ? TYPE : "text/plain");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned int status,
				  char *text)
{
	return reply(connection, status,
		     MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT));
}

static enum MHD_Result reply_metrics(const struct metrics_server *server,
				     struct MHD_Connection *connection)
{
	size_t size;
	char *text = server->options.text(server->options.context, &size);

	if (!text)
		return MHD_NO;
	return reply(connection, MHD_HTTP_OK,
		     MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE));
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *data,
			      size_t *size, void **request)
{
	static char not_found[] = "The metrics are at /metrics.\n",
		    not_allowed[] = "Only GET is supported.\n";

	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, not_allowed);
	if (strcmp(url, "/metrics") != 0)
		return reply_text(connection, MHD_HTTP_NOT_FOUND, not_found);
	return reply_metrics(context, connection);
}

/* The thread */

static void wait_for_clients(const struct metrics_server *server, int timeout)
{
	const union MHD_DaemonInfo *info =
		MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	struct pollfd events[] = { { .fd = info->epoll_fd, .events = POLLIN },
				   { .fd = server->stop_fd, .events = POLLIN } };
	MHD_UNSIGNED_LONG_LONG left;

	if (MHD_get_timeout(server->daemon, &left) == MHD_YES &&
	    (timeout < 0 || left < (unsigned int)timeout))
		timeout = (int)left;
	poll(events, 2, timeout);
}

static void *serve(void *argument)
{
	struct metrics_server *server = argument;
	struct pollfd stop = { .fd = server->stop_fd, .events = POLLIN };

	while (!poll(&stop, 1, 0)) {
		wait_for_clients(server, drop_late(server));
		MHD_run(server->daemon);
	}
	return NULL;
}

/* MHD_stop_daemon() closes the socket. */
static int start_daemon(struct metrics_server *server)
{
	int fd = metrics_listen(server->options.listen);

	if (fd < 0)
		return fd;
	server->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, server,
					  MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
					  ACCEPTED_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
					  (size_t)REQUEST_MAX, MHD_OPTION_NOTIFY_CONNECTION,
					  note_connection, server, MHD_OPTION_END);
	if (server->daemon)
		return 0;
	close(fd);
	return error_set(-ENOMEM, "cannot serve metrics at %s", server->options.listen);
}

static int start_thread(struct metrics_server *server)
{
	int error;

	server->stop_fd = eventfd(0, EFD_CLOEXEC);
	error = server->stop_fd < 0 ? -errno
				    : thread_start(&server->thread, "metrics", serve, server);
	server->started = !error;
	return error ? error_set(error, "cannot start the metrics thread: %s", strerror(-error))
		     : 0;
}

int metrics_server_start(struct metrics_server **result,
			 const struct metrics_server_options *options)
{
	struct metrics_server *server = calloc(1, sizeof(*server));
	int error;

	if (!server)
		return error_set(-ENOMEM, "no memory for metrics");
	server->options = *options;
	if (!server->options.patience_ms)
		server->options.patience_ms = PATIENCE_MS;
	server->stop_fd = -1;
	for (size_t i = 0; i < ACCEPTED_MAX; i++)
		server->clients[i].fd = -1;
	error = start_daemon(server);
	if (!error)
		error = start_thread(server);
	if (error)
		metrics_server_stop(server);
	else
		*result = server;
	return error;
}

void metrics_server_stop(struct metrics_server *server)
{
	if (!server)
		return;
	if (server->started) {
		eventfd_write(server->stop_fd, 1);
		pthread_join(server->thread, NULL);
	}
	if (server->daemon)
		MHD_stop_daemon(server->daemon);
	if (server->stop_fd >= 0)
		close(server->stop_fd);
	free(server);
}

uint16_t metrics_server_port(const struct metrics_server *server)
{
	const int fd = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_LISTEN_FD)->listen_fd;
	struct sockaddr_in6 address = { 0 }; /* the port is where sockaddr_in has it */
	socklen_t size = sizeof(address);

	return getsockname(fd, (struct sockaddr *)&address, &size) || address.sin6_family == AF_UNIX
		       ? 0
		       : ntohs(address.sin6_port);
}
