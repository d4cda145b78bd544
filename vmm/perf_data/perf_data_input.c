/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "shared/error.h"
#include "vmm/perf_data/perf_data_format.h"
#include "vmm/perf_data/recording_name.h"

#define BUFFER_SIZE (256u << 10)

static int examine(struct perf_data_input *input, const char *path)
{
	struct stat status;

	if (input->fd < 0 || fstat(input->fd, &status))
		return error_set(
			-errno, "cannot open %s: %m%s", path,
			errno == ENOENT
				? "; record one with kvmscope run or attach, or give another file with -i"
				: "");
	if (S_ISDIR(status.st_mode))
		return error_set(-EISDIR,
				 "%s is a directory, which cannot be read; record to a single file",
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

static void consume(struct perf_data_input *input, size_t size)
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
		consume(input, input->filled);
		if (!perf_data_input_peek(input, 1, &unused))
			return false;
	}
	consume(input, size);
	return true;
}

bool perf_data_input_at_end(struct perf_data_input *input)
{
	struct span unused;

	return !perf_data_input_peek(input, 1, &unused);
}

/* Limit of one record's unpacked size: perf unpacks no more than a ring buffer of its recording. */
#define UNPACKED_MAX (64u << 20)
#define STEP         (256u << 10)

void perf_data_unpack_start(struct perf_data_unpack *unpack)
{
	if (unpack->stream)
		ZSTD_DCtx_reset(unpack->stream, ZSTD_reset_session_only);
	unpack->start = 0;
	unpack->end = 0;
	unpack->good = true;
}

static int fail(struct perf_data_unpack *unpack, const char *why)
{
	unpack->good = false;
	return error_set(-EINVAL, "%s", why);
}

static int make_room(struct perf_data_unpack *unpack)
{
	size_t room = unpack->room ? 2 * unpack->room : (size_t)2 * STEP;
	uint8_t *larger;

	if (unpack->room - unpack->end >= STEP)
		return 0;
	if (unpack->room >= UNPACKED_MAX)
		return fail(unpack, "it unpacks to an implausible size");
	larger = realloc(unpack->data, room);
	if (!larger)
		return error_set(-ENOMEM, "no memory to unpack perf.data");
	unpack->data = larger;
	unpack->room = room;
	return 0;
}

/* Moves the unread rest of the last feed to the front. */
static void compact(struct perf_data_unpack *unpack)
{
	if (unpack->start)
		memmove(unpack->data, unpack->data + unpack->start, unpack->end - unpack->start);
	unpack->end -= unpack->start;
	unpack->start = 0;
}

int perf_data_unpack_feed(struct perf_data_unpack *unpack, struct span packed)
{
	ZSTD_inBuffer in = { packed.data, packed.size, 0 };
	bool full = true;

	if (!unpack->stream)
		unpack->stream = ZSTD_createDCtx();
	if (!unpack->stream)
		return error_set(-ENOMEM, "no memory to unpack perf.data");
	compact(unpack);
	while (in.pos < in.size || full) {
		int error = make_room(unpack);
		ZSTD_outBuffer out = { unpack->data, unpack->room, unpack->end };
		size_t result;

		if (error)
			return error;
		result = ZSTD_decompressStream(unpack->stream, &out, &in);
		if (ZSTD_isError(result))
			return fail(unpack, ZSTD_getErrorName(result));
		full = out.pos == out.size;
		unpack->end = out.pos;
	}
	return 0;
}

bool perf_data_unpack_next(struct perf_data_unpack *unpack, struct span *record, int *error)
{
	struct span left = span_of(unpack->data + unpack->start, unpack->end - unpack->start);
	struct perf_event_header header;

	if (!span_copy(left, 0, &header, sizeof(header)))
		return false;
	if (header.size < sizeof(header)) {
		*error = fail(unpack, "a record in it is too small");
		return false;
	}
	if (!span_part(left, 0, header.size, record))
		return false;
	unpack->start += header.size;
	return true;
}

void perf_data_unpack_free(struct perf_data_unpack *unpack)
{
	ZSTD_freeDCtx(unpack->stream);
	free(unpack->data);
	*unpack = (struct perf_data_unpack){ 0 };
}
