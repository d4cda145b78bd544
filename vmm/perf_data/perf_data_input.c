// SPDX-License-Identifier: Apache-2.0
#include "vmm/perf_data/perf_data_input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/perf_data/recording_name.h"

#define BUFFER_SIZE (256u << 10)

static int examine(struct perf_data_input *input, const char *path)
{
	struct stat status;

	if (input->fd < 0 || fstat(input->fd, &status))
		return error_set(-errno, "can't open %s: %s%s", path, strerror(errno),
				 errno == ENOENT
					 ? "; kvmscope run and attach write one, -i names another"
					 : "");
	if (S_ISDIR(status.st_mode))
		return error_set(
			-EISDIR,
			"%s is a directory: perf.data directories are not read; record to one file",
			path);
	input->seekable = S_ISREG(status.st_mode);
	input->size = input->seekable ? (uint64_t)status.st_size : UINT64_MAX;
	input->end = input->size;
	return 0;
}

int perf_data_input_open(struct perf_data_input *input, const char *path)
{
	int error;

	*input = (struct perf_data_input){ 0 };
	input->fd = strcmp(path, "-") ? recording_name_open(path) : dup(STDIN_FILENO);
	error = examine(input, path);
	if (!error) {
		input->buffer = malloc(BUFFER_SIZE);
		if (!input->buffer)
			error = error_set(-ENOMEM, "no memory to read %s", path);
	}
	if (error)
		perf_data_input_close(input);
	return error;
}

void perf_data_input_close(struct perf_data_input *input)
{
	if (input->fd >= 0)
		close(input->fd);
	free(input->buffer);
	input->fd = -1;
	input->buffer = NULL;
}

bool perf_data_input_at(struct perf_data_input *input, uint64_t offset, void *to, size_t size)
{
	if (!input->seekable || offset > input->size || size > input->size - offset)
		return false;
	return pread(input->fd, to, size, (off_t)offset) == (ssize_t)size;
}

void perf_data_input_range(struct perf_data_input *input, uint64_t start, uint64_t end)
{
	input->end = end < input->size ? end : input->size;
	if (!input->seekable)
		return;
	input->position = start < input->end ? start : input->end;
	input->start = 0;
	input->filled = 0;
}

static ssize_t read_some(struct perf_data_input *input, void *to, size_t size)
{
	ssize_t done;

	do
		done = input->seekable ? pread(input->fd, to, size,
					       (off_t)(input->position + input->filled))
				       : read(input->fd, to, size);
	while (done < 0 && errno == EINTR);
	if (done < 0)
		input->error = -errno;
	return done;
}

static bool fill(struct perf_data_input *input, size_t size)
{
	memmove(input->buffer, input->buffer + input->start, input->filled);
	input->start = 0;
	while (input->filled < size) {
		uint64_t left = input->end - input->position - input->filled;
		size_t room = BUFFER_SIZE - input->filled;
		ssize_t done =
			read_some(input, input->buffer + input->filled, left < room ? left : room);

		if (done <= 0)
			return false;
		input->filled += (size_t)done;
	}
	return true;
}

bool perf_data_input_peek(struct perf_data_input *input, size_t size, struct span *bytes)
{
	if (size > BUFFER_SIZE || size > input->end - input->position)
		return false;
	if (input->filled < size && !fill(input, size))
		return false;
	*bytes = span_of(input->buffer + input->start, size);
	return true;
}

static void take(struct perf_data_input *input, size_t size)
{
	input->start += size;
	input->filled -= size;
	input->position += size;
}

bool perf_data_input_skip(struct perf_data_input *input, uint64_t size)
{
	struct span unused;

	while (size > input->filled) {
		size -= input->filled;
		take(input, input->filled);
		if (!perf_data_input_peek(input, 1, &unused))
			return false;
	}
	take(input, size);
	return true;
}

bool perf_data_input_at_end(struct perf_data_input *input)
{
	struct span unused;

	return !perf_data_input_peek(input, 1, &unused);
}
