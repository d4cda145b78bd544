/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/control/control_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/control/control_protocol.h"

static int open_socket(void)
{
	struct timeval limit = { .tv_sec = CONTROL_TIMEOUT_S };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return error_set(-errno, "cannot create a socket: %s", strerror(errno));
	/* SO_SNDTIMEO also limits connect(2): unix(7), socket(7). */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	return fd;
}

static int set_address(struct sockaddr_un *address, const char *path)
{
	size_t length = strlen(path);

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (length >= sizeof(address->sun_path))
		return error_set(
			-ENAMETOOLONG,
			"socket path %s is longer than the %zu bytes that the kernel takes", path,
			sizeof(address->sun_path) - 1);
	memcpy(address->sun_path, path, length);
	return 0;
}

bool control_is_dead(const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	bool refused;

	refused = !set_address(&address, path) &&
		  connect(fd, (const struct sockaddr *)&address, sizeof(address)) &&
		  errno == ECONNREFUSED;
	if (fd >= 0)
		close(fd);
	return refused;
}

int control_connect(const char *path)
{
	struct sockaddr_un address;
	int error = set_address(&address, path);
	int fd = error ? error : open_socket();

	if (fd < 0)
		return fd;
	if (!connect(fd, (const struct sockaddr *)&address, sizeof(address)))
		return fd;
	error = -errno;
	close(fd);
	return error_set(error, "cannot connect to %s: %s%s", path, strerror(-error),
			 error == -ECONNREFUSED ? "; its run has ended" : "");
}

pid_t control_connected_pid(int fd)
{
	struct ucred other;
	socklen_t size = sizeof(other);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) ? 0 : other.pid;
}

static int report_socket(const char *what)
{
	int error = errno == EAGAIN || errno == EWOULDBLOCK ? ETIMEDOUT : errno;

	return error_set(-error, "%s: %s", what,
			 error == ETIMEDOUT ? "the run does not answer" : strerror(error));
}

static int send_line(int fd, const char *line)
{
	size_t size = strlen(line), sent = 0;

	while (sent < size) {
		ssize_t count = send(fd, line + sent, size - sent, MSG_NOSIGNAL);

		if (count < 0 && errno != EINTR)
			return report_socket("cannot send a request");
		sent += count < 0 ? 0 : (size_t)count;
	}
	return 0;
}

/* Nothing follows the newline: there is one answer to one request. */
static int receive_line(int fd, char *line, size_t *size)
{
	size_t filled = 0;

	do {
		ssize_t count = recv(fd, line + filled, CONTROL_ANSWER_MAX - filled, 0);

		if (count == 0)
			return error_set(
				-ECONNRESET,
				"the run ended or closed the connection before it answered");
		if (count < 0 && errno != EINTR)
			return report_socket("cannot receive the answer");
		filled += count < 0 ? 0 : (size_t)count;
	} while (filled < CONTROL_ANSWER_MAX && (!filled || line[filled - 1] != '\n'));
	*size = filled;
	return 0;
}

static int exchange(int fd, const char *request, json_t **result)
{
	char *answer = malloc(CONTROL_ANSWER_MAX);
	size_t size = 0;
	int error;

	if (!answer)
		return error_set(-ENOMEM, "no memory for an answer");
	error = send_line(fd, request);
	if (!error || error == -EPIPE) /* a server that refuses us sends the reason and closes the
					  connection */
		error = receive_line(fd, answer, &size);
	if (!error)
		error = control_answer_parse(answer, size, result);
	free(answer);
	return error;
}

int control_call(int fd, const char *command, json_t *arguments, json_t **result)
{
	char *request = control_request_format(command, arguments);
	json_t *answer = NULL;
	int error = request ? exchange(fd, request, &answer)
			    : error_set(-EINVAL, "the request cannot be written as JSON");

	free(request);
	if (result)
		*result = answer;
	else
		json_decref(answer);
	return error;
}
