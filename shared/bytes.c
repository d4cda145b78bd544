/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/array.h"

bool bytes_make_room(struct bytes *bytes, size_t size)
{
	size_t needed;

	if (bytes->failed)
		return false;
	bytes->failed = __builtin_add_overflow(bytes->size, size, &needed) ||
			array_reserve(&bytes->data, &bytes->room, needed < 256 ? 256 : needed);
	return !bytes->failed;
}

static int write_all(int fd, const struct bytes *bytes)
{
	for (size_t done = 0; done < bytes->size;) {
		ssize_t size = write(fd, bytes->data + done, bytes->size - done);

		if (size <= 0)
			return size ? -errno : -EIO;
		done += (size_t)size;
	}
	return 0;
}

int bytes_open_file(const struct bytes *bytes, char path[BYTES_PATH_SIZE])
{
	int fd = memfd_create("kvmscope-bytes", MFD_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = write_all(fd, bytes);
	if (error) {
		close(fd);
		return error;
	}
	snprintf(path, BYTES_PATH_SIZE, "/proc/self/fd/%d", fd);
	return fd;
}
