// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/host_vsock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "shared/parse_number.h"

static bool parse_number(const char *text, char end, const char **behind, unsigned int *number)
{
	uint64_t value = 0;

	*behind = parse_decimal(text, UINT32_MAX, &value);
	if (!*behind || **behind != end)
		return false;
	*number = (unsigned int)value;
	return true;
}

bool vsock_parse(const char *text, struct vsock_address *address)
{
	const char *behind;

	address->cid = VMADDR_CID_HOST;
	if (parse_number(text, ':', &behind, &address->cid))
		text = behind + 1;
	return parse_number(text, '\0', &behind, &address->port);
}

/* What says that there is nobody now, and may be later. */
static bool is_away(int error)
{
	return error == ECONNRESET || error == ECONNREFUSED || error == ETIMEDOUT ||
	       error == ENODEV || error == ENETUNREACH || error == EAFNOSUPPORT ||
	       error == EHOSTUNREACH || error == EINTR;
}

/* Root's ports, by which the host knows the agent from other programs of the guest (vsock(7)). */
#define PORT_FIRST 512u
#define PORT_LAST  1023u

/* Who may not have one connects from any other: it is the host's to take that. */
static void take_privileged_port(int fd)
{
	struct sockaddr_vm from = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY };

	for (from.svm_port = PORT_LAST; from.svm_port >= PORT_FIRST; from.svm_port--)
		if (!bind(fd, (const struct sockaddr *)&from, sizeof(from)) || errno != EADDRINUSE)
			return;
}

int vsock_open(const struct vsock_address *address)
{
	struct sockaddr_vm to = { .svm_family = AF_VSOCK,
				  .svm_cid = address->cid,
				  .svm_port = address->port };
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0), error = errno;

	if (fd >= 0) {
		take_privileged_port(fd);
		if (!connect(fd, (const struct sockaddr *)&to, sizeof(to)) &&
		    !fcntl(fd, F_SETFL, O_NONBLOCK))
			return fd;
		error = errno;
		close(fd);
	}
	return is_away(error) ? -ENOENT : -error;
}
