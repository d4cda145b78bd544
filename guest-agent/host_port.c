// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/host_port.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PORTS "/sys/class/virtio-ports"

static int open_device(const char *path)
{
	int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

	return fd < 0 ? -errno : fd;
}

static bool has_name(const char *device, const char *name)
{
	char path[512], text[128];
	ssize_t size;
	int fd;

	snprintf(path, sizeof(path), PORTS "/%s/name", device);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	size = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[size > 0 ? size : 0] = '\0';
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
