// SPDX-License-Identifier: Apache-2.0
#include "vmm/symbols/bytes_file.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static int write_all(int fd, const struct bytes *bytes)
{
	for (size_t done = 0; done < bytes->size;) {
		ssize_t size = write(fd, bytes->data + done, bytes->size - done);

		if (size < 0)
			return -errno;
		if (!size)
			return -EIO;
		done += (size_t)size;
	}
	return 0;
}

int bytes_file_open(const struct bytes *bytes, char path[BYTES_FILE_PATH])
{
	int fd = memfd_create("kvmscope-bytes", MFD_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = write_all(fd, bytes);
	if (error) {
		close(fd);
		return error;
	}
	snprintf(path, BYTES_FILE_PATH, "/proc/self/fd/%d", fd);
	return fd;
}
