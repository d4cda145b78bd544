/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/kernel_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"

static int file_map(struct kernel_file *file)
{
	struct stat status;
	void *bytes;

	if (fstat(file->fd, &status))
		return error_set(-errno, "%s: fstat: %m", file->path);
	if (!S_ISREG(status.st_mode))
		return error_set(-EINVAL, "%s is not a regular file; give the path of an image",
				 file->path);
	if (status.st_size == 0)
		return error_set(-EINVAL, "%s is empty", file->path);
	bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file->fd, 0);
	if (bytes == MAP_FAILED)
		return error_set(-errno, "%s: mmap of %lld bytes: %m", file->path,
				 (long long)status.st_size);
	file->mapping = bytes;
	file->bytes = span_of(bytes, (size_t)status.st_size);
	return 0;
}

int kernel_file_open(struct kernel_file *file, const char *path)
{
	int error;

	/* O_NONBLOCK: a FIFO without a writer must not block before its type is checked. */
	*file = (struct kernel_file){ .path = path,
				      .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
	if (file->fd < 0)
		return error_set(-errno, "cannot open %s: %m", path);
	error = file_map(file);
	if (error)
		kernel_file_close(file);
	return error;
}

void kernel_file_close(struct kernel_file *file)
{
	if (file->mapping)
		munmap(file->mapping, file->bytes.size);
	if (file->fd >= 0)
		close(file->fd);
	*file = (struct kernel_file){ .fd = -1 };
}

int kernel_file_load(const struct kernel_file *file, uint64_t offset, uint64_t size,
		     const struct memory *memory, uint64_t gpa)
{
	uint8_t *to = memory_pointer(memory, gpa, size);

	if (!span_contains(file->bytes, offset, size))
		return error_set(
			-ENOEXEC,
			"%s is truncated: it should have %llu bytes at offset %llu, but ends at %zu",
			file->path, (unsigned long long)size, (unsigned long long)offset,
			file->bytes.size);
	if (!to)
		return error_set(
			-ENOSPC,
			"%s does not fit: it needs guest RAM from %#llx to %#llx; give the guest more memory",
			file->path, (unsigned long long)gpa, (unsigned long long)gpa + size);
	while (size) {
		ssize_t count = pread(file->fd, to, size, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return error_set(-errno, "%s: read at offset %llu: %m", file->path,
					 (unsigned long long)offset);
		if (count == 0)
			return error_set(-EIO, "%s was truncated while it was read", file->path);
		to += count;
		offset += (uint64_t)count;
		size -= (uint64_t)count;
	}
	return 0;
}
