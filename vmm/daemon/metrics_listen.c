/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/metrics_listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shared/error.h"

#define TYPE (SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK)

static bool is_port(const char *text)
{
	return *text && strlen(text) <= 5 && strspn(text, "0123456789") == strlen(text) &&
	       atoi(text) <= UINT16_MAX;
}

/* Resolves "HOST:PORT"; a HOST with ':' is in brackets. Free the result by freeaddrinfo(); NULL
 * with the message. */
static struct addrinfo *resolve(const char *listen)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
					.ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	const char *colon = strrchr(listen, ':');
	char host[256];
	size_t length = colon ? (size_t)(colon - listen) : 0;
	struct addrinfo *address;
	int error = EAI_NONAME;

	if (length && length < sizeof(host) && is_port(colon + 1)) {
		bool brackets = listen[0] == '[' && colon[-1] == ']';

		snprintf(host, sizeof(host), "%.*s", (int)(length - 2 * (size_t)brackets),
			 listen + brackets);
		error = getaddrinfo(host, colon + 1, &hints, &address);
	}
	if (!error)
		return address;
	error_set(
		-EINVAL,
		"cannot listen at %s: %s; write an address and port, as 127.0.0.1:9754, or a path",
		listen, gai_strerror(error));
	return NULL;
}

/* Returns FD, which is closed on an error. */
static int start(int fd, const char *where, const struct sockaddr *address, socklen_t size)
{
	int error;

	if (fd >= 0 && !bind(fd, address, size) && !listen(fd, SOMAXCONN))
		return fd;
	error = -errno;
	if (fd >= 0)
		close(fd);
	return error_set(error, "cannot listen at %s for Prometheus: %s", where, strerror(-error));
}

static int listen_at_port(const char *where)
{
	struct addrinfo *address = resolve(where);
	const int on = 1;
	int fd;

	if (!address)
		return -EINVAL;
	fd = socket(address->ai_family, TYPE, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd >= 0 && address->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	fd = start(fd, where, address->ai_addr, address->ai_addrlen);
	freeaddrinfo(address);
	return fd;
}

static int listen_at_path(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct stat status;
	int fd;

	if (snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
	    (int)sizeof(address.sun_path))
		return error_set(-EINVAL, "the path %s is too long for a socket", path);
	if (!lstat(path, &status) && S_ISSOCK(status.st_mode))
		unlink(path);
	fd = socket(AF_UNIX, TYPE, 0);
	if (fd >= 0)
		fchmod(fd, S_IRUSR | S_IWUSR); /* of the file, too (kernel: unix_bind_bsd()) */
	return start(fd, path, (const struct sockaddr *)&address, sizeof(address));
}

int metrics_listen(const char *where)
{
	return *where == '/' ? listen_at_path(where) : listen_at_port(where);
}
