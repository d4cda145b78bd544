/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/array.h"
#include "shared/read_file.h"

bool bytes_grow(struct bytes *bytes, size_t size)
{
	size_t needed;

	if (bytes->failed)
		return false;
	bytes->failed = __builtin_add_overflow(bytes->size, size, &needed) ||
			array_reserve(&bytes->data, &bytes->room, needed < 256 ? 256 : needed);
	return !bytes->failed;
}

int bytes_open_file(const struct bytes *bytes, char path[BYTES_PATH_SIZE])
{
	int fd = memfd_create("kvmscope-bytes", MFD_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = write_descriptor(fd, bytes->data, bytes->size);
	if (error) {
		close(fd);
		return error;
	}
	snprintf(path, BYTES_PATH_SIZE, "/proc/self/fd/%d", fd);
	return fd;
}
