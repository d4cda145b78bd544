// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/proc_files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int proc_open(pid_t pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

ssize_t proc_read(int directory, const char *path, char *text, size_t size)
{
	int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return -errno;
	length = read(fd, text, size - 1);
	if (length < 0)
		length = -errno;
	close(fd);
	text[length > 0 ? length : 0] = '\0';
	return length;
}

int proc_each_number(int directory, const char *path, bool (*each)(void *context, int number),
		     void *context)
{
	int fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!entries) {
		int error = -errno;

		if (fd >= 0)
			close(fd);
		return error;
	}
	while ((entry = readdir(entries)))
		if (isdigit((unsigned char)*entry->d_name) && !each(context, atoi(entry->d_name)))
			break;
	closedir(entries);
	return 0;
}

bool proc_read_link(int directory, int fd, char *link, size_t size)
{
	char path[32];
	ssize_t length;

	snprintf(path, sizeof(path), "fd/%d", fd);
	errno = 0; /* of an empty one it stays so */
	length = readlinkat(directory, path, link, size - 1);
	link[length > 0 ? length : 0] = '\0';
	return length > 0;
}
