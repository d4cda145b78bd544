/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/unix_listener.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shared/error.h"

#define BACKLOG 1

static int open_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : fd;
}

/* True for the socket of a process that has ended: it refuses connections. */
static bool is_stale(const struct sockaddr_un *address)
{
	int fd = open_socket();
	struct stat status;
	bool refused;

	if (fd < 0)
		return false;
	refused = !lstat(address->sun_path, &status) && S_ISSOCK(status.st_mode) &&
		  connect(fd, (const struct sockaddr *)address, sizeof(*address)) &&
		  errno == ECONNREFUSED;
	close(fd);
	return refused;
}

/* fchmod() before bind() sets the socket's mode, so other users can never connect. */
static int bind_and_listen(int fd, const struct sockaddr_un *address)
{
	const struct sockaddr *general = (const struct sockaddr *)address;

	if (fchmod(fd, S_IRUSR | S_IWUSR))
		return -errno;
	if (bind(fd, general, sizeof(*address))) {
		int error = -errno;

		if (error != -EADDRINUSE || !is_stale(address))
			return error;
		if (unlink(address->sun_path))
			return -errno;
		if (bind(fd, general, sizeof(*address)))
			return -errno;
	}
	return listen(fd, BACKLOG) ? -errno : 0;
}

int unix_listener_open(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = strlen(path);
	int error, fd;

	if (length >= sizeof(address.sun_path))
		return error_set(-ENAMETOOLONG,
				 "socket path %s is longer than the kernel's limit of %zu bytes",
				 path, sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, path, length);
	fd = open_socket();
	if (fd < 0)
		return error_set(fd, "cannot create a socket for %s: %s", path, strerror(-fd));
	error = bind_and_listen(fd, &address);
	if (!error)
		return fd;
	close(fd);
	return error_set(error, "cannot listen on socket %s: %s%s", path, strerror(-error),
			 error == -EADDRINUSE ? " (does another VM use it?)" : "");
}
