/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/read_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/array.h"

/* Appends what one read(2) gives to the *USED bytes. The number of bytes, 0 at the end. */
static ssize_t append(int fd, size_t max, char **bytes, size_t *capacity, size_t *used)
{
	ssize_t got;

	if (*used > max)
		return -EFBIG;
	if (array_reserve(bytes, capacity, *used + 4096))
		return -ENOMEM;
	do
		got = read(fd, *bytes + *used, *capacity - *used - 1);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	*used += (size_t)got;
	return got;
}

int read_descriptor(int fd, size_t max, char **text, size_t *size)
{
	size_t capacity = 0, used = 0;
	char *bytes = NULL;
	ssize_t got;

	do
		got = append(fd, max, &bytes, &capacity, &used);
	while (got > 0);
	if (got < 0) {
		free(bytes);
		return (int)got;
	}
	bytes[used] = '\0';
	*text = bytes;
	*size = used;
	return 0;
}

int read_file(const char *path, size_t max, char **text, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), error;
	struct stat status;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &status))
		error = -errno;
	else if (!S_ISREG(status.st_mode))
		error = -EINVAL;
	else
		error = read_descriptor(fd, max, text, size);
	close(fd);
	return error;
}

/* openat(2), because musl's open() sets O_CLOEXEC again by fcntl(2). */
size_t read_small_file(int directory, const char *path, char *to, size_t size)
{
	int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, to, size - 1);

	if (fd >= 0)
		close(fd);
	to[got > 0 ? got : 0] = '\0';
	return got > 0 ? (size_t)got : 0;
}

int write_descriptor(int fd, const void *data, size_t size)
{
	const char *next = data;

	while (size) {
		ssize_t written = write(fd, next, size);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return written ? -errno : -EIO;
		next += written;
		size -= (size_t)written;
	}
	return 0;
}

bool file_is_readable(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}
