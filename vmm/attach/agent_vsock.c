/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/agent_vsock.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "shared/error.h"
#include "shared/parse_number.h"

/* Connections checked per call, so that a client that keeps connecting cannot block the caller. */
#define ACCEPTS_MAX 16

static bool parse_number(const char **text, char end, unsigned int *number)
{
	uint64_t value = 0;
	const char *stop = parse_decimal(*text, VMADDR_CID_ANY - 1, &value);

	if (!stop || *stop != end)
		return false;
	*text = stop + 1;
	*number = (unsigned int)value;
	return true;
}

bool agent_vsock_parse(const char *text, struct agent_vsock_address *address)
{
	static const char prefix[] = "vsock:";

	if (strncmp(text, prefix, sizeof(prefix) - 1) != 0)
		return false;
	text += sizeof(prefix) - 1;
	return parse_number(&text, ':', &address->cid) && parse_number(&text, '\0', &address->port);
}

int agent_vsock_listen(const struct agent_vsock_address *address)
{
	const struct sockaddr_vm here = { .svm_family = AF_VSOCK,
					  .svm_cid = VMADDR_CID_ANY,
					  .svm_port = address->port };
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;

	if (fd >= 0 && !bind(fd, (const struct sockaddr *)&here, sizeof(here)) && !listen(fd, 8))
		return fd;
	error = -errno;
	if (fd >= 0)
		close(fd);
	return error_set(error, "cannot listen for the guest agent on vsock port %u: %s%s",
			 address->port, strerror(-error),
			 error == -EAFNOSUPPORT ? " (Linux module vhost_vsock)" : "");
}

/*
 * Only root of the guest's initial user namespace can bind these ports (vsock(7)); the agent does.
 */
#define PRIVILEGED_PORT_LAST 1023u

static bool is_agent(const struct sockaddr_vm *peer, const struct agent_vsock_address *address)
{
	return peer->svm_cid == address->cid && peer->svm_port <= PRIVILEGED_PORT_LAST;
}

int agent_vsock_accept(int listener, const struct agent_vsock_address *address)
{
	struct sockaddr_vm guest = { 0 };

	errno = EAGAIN;
	for (int i = 0; i < ACCEPTS_MAX; i++) {
		socklen_t size = sizeof(guest);
		int fd = accept4(listener, (struct sockaddr *)&guest, &size,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			break;
		if (is_agent(&guest, address))
			return fd;
		close(fd);
		errno = EAGAIN;
	}
	return error_set(-errno, "the guest agent has not connected over vsock: %s",
			 strerror(errno));
}
