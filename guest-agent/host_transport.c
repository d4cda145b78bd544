/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/host_transport.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "shared/parse_number.h"
#include "shared/read_file.h"

#define PORTS "/sys/class/virtio-ports"

static int open_device(const char *path)
{
	int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

	return fd < 0 ? -errno : fd;
}

static bool has_name(const char *device, const char *name)
{
	char path[512], text[128];

	snprintf(path, sizeof(path), PORTS "/%s/name", device);
	if (!read_small_file(AT_FDCWD, path, text, sizeof(text)))
		return false;
	text[strcspn(text, "\n")] = '\0';
	return !strcmp(text, name);
}

static int open_by_sysfs(const char *name)
{
	DIR *ports = opendir(PORTS);
	struct dirent *entry;
	char path[512];
	int fd = -ENOENT;

	while (ports && fd == -ENOENT && (entry = readdir(ports))) {
		if (*entry->d_name == '.' || !has_name(entry->d_name, name))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		fd = open_device(path);
	}
	if (ports)
		closedir(ports);
	return fd;
}

int port_open(const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/dev/virtio-ports/%s", name);
	fd = open_device(path);
	return fd == -ENOENT ? open_by_sysfs(name) : fd;
}

static bool parse_part(const char *text, char end, const char **rest, unsigned int *number)
{
	uint64_t value = 0;

	*rest = parse_decimal(text, UINT32_MAX, &value);
	if (!*rest || **rest != end)
		return false;
	*number = (unsigned int)value;
	return true;
}

bool vsock_parse(const char *text, struct vsock_address *address)
{
	const char *rest;

	address->cid = VMADDR_CID_HOST;
	if (parse_part(text, ':', &rest, &address->cid))
		text = rest + 1;
	return parse_part(text, '\0', &rest, &address->port);
}

/* Errors that may disappear later. */
static bool is_temporary(int error)
{
	return error == ECONNRESET || error == ECONNREFUSED || error == ETIMEDOUT ||
	       error == ENODEV || error == ENETUNREACH || error == EAFNOSUPPORT ||
	       error == EHOSTUNREACH || error == EINTR;
}

/* Privileged ports (vsock(7)): they show the host that root runs the peer. */
#define PORT_FIRST 512u
#define PORT_LAST  1023u

/* Without the privilege any port is used, and the host decides whether to accept it. */
static void bind_privileged_port(int fd)
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
		bind_privileged_port(fd);
		if (!connect(fd, (const struct sockaddr *)&to, sizeof(to)) &&
		    !fcntl(fd, F_SETFL, O_NONBLOCK))
			return fd;
		error = errno;
		close(fd);
	}
	return is_temporary(error) ? -ENOENT : -error;
}
