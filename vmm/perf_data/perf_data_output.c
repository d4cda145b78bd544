/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "shared/error.h"
#include "vmm/perf_data/output_path.h"
#include "vmm/perf_data/perf_data_format.h"

#define PLAIN_BLOCK (256u << 10)

struct perf_data_output {
	int fd;
	bool pipe;
	bool started;
	char *path;
	int error;                                /* the first one; nothing is written after it */
	const struct perf_data_room *room_keeper; /* NULL: none */
	uint64_t position;                        /* bytes written, all of them valid */
	uint64_t data_offset;
	uint64_t records_in, data_out; /* bytes, for the ratio */
	ZSTD_CCtx *zstd;               /* NULL: no compression */
	uint8_t *packed;               /* buffer for one compressed record */
	uint8_t *block;
	size_t used, room;
};

const char *perf_data_output_name(const char *path)
{
	return strcmp(path, "-") != 0 ? path : "standard output";
}

static int failed(struct perf_data_output *output, int error, const char *what)
{
	output->error = error_set(error, "cannot %s %s: %s", what,
				  perf_data_output_name(output->path), strerror(-error));
	return output->error;
}

/* Like perf record, renames an existing file to TARGET.old; an empty one is removed. */
static int keep_old(struct perf_data_output *output, const char *target)
{
	char old[PATH_MAX];
	struct stat status;

	if ((size_t)snprintf(old, sizeof(old), "%s.old", target) >= sizeof(old))
		return failed(output, -ENAMETOOLONG, "open");
	if (!lstat(target, &status) && !status.st_size && !unlink(target))
		return 0;
	if (rename(target, old) && errno != ENOENT)
		return error_set(-errno, "cannot rename %s to %s: %m; give another file with -o",
				 target, old);
	return 0;
}

/* FLAGS: O_EXCL for a new file, O_TRUNC for an existing one. */
static int open_file(struct perf_data_output *output, const char *path, int flags)
{
	output->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600);
	return output->fd < 0 ? failed(output, -errno, "open") : 0;
}

static int open_pipe(struct perf_data_output *output)
{
	bool standard = !strcmp(output->path, "-");

	output->pipe = true;
	output->fd = standard ? dup(STDOUT_FILENO) : open(output->path, O_WRONLY | O_CLOEXEC);
	return output->fd < 0 ? failed(output, -errno, "open") : 0;
}

static int open_path(struct perf_data_output *output)
{
	char target[PATH_MAX];
	struct stat status;
	int error;

	if (!strcmp(output->path, "-"))
		return open_pipe(output);
	if (output_path_is_file(output->path, target)) {
		error = keep_old(output, target);
		return error ? error : open_file(output, target, O_EXCL);
	}
	if (!stat(output->path, &status) && !S_ISREG(status.st_mode))
		return open_pipe(output);
	return open_file(output, output->path, O_TRUNC);
}

static int prepare(struct perf_data_output *output, unsigned int compression)
{
	output->room = PLAIN_BLOCK;
	if (compression) {
		output->room = PERF_DATA_OUTPUT_CHUNK;
		output->zstd = ZSTD_createCCtx();
		output->packed = malloc(PERF_DATA_RECORD_MAX);
		if (!output->zstd || !output->packed)
			return error_set(-ENOMEM, "no memory to compress %s", output->path);
		ZSTD_CCtx_setParameter(output->zstd, ZSTD_c_compressionLevel, (int)compression);
	}
	output->block = malloc(output->room);
	return output->block ? 0 : error_set(-ENOMEM, "no memory for a block of %s", output->path);
}

int perf_data_output_open(struct perf_data_output **result, const char *path,
			  unsigned int compression)
{
	struct perf_data_output *output = calloc(1, sizeof(*output));
	int error;

	if (!output)
		return error_set(-ENOMEM, "no memory to write %s", path);
	output->fd = -1;
	output->path = strdup(path);
	if (!output->path) {
		free(output);
		return error_set(-ENOMEM, "no memory to write %s", path);
	}
	error = prepare(output, compression);
	if (!error)
		error = open_path(output);
	if (error)
		perf_data_output_close(output);
	else
		*result = output;
	return error;
}

void perf_data_output_set_room(struct perf_data_output *output, const struct perf_data_room *room)
{
	output->room_keeper = room;
}

bool perf_data_output_is_pipe(const struct perf_data_output *output)
{
	return output->pipe;
}

static ssize_t write_some(struct perf_data_output *output, const void *data, size_t size,
			  uint64_t offset)
{
	return output->pipe ? write(output->fd, data, size)
			    : pwrite(output->fd, data, size, (off_t)offset);
}

/* 0, or the error that ends the file, with the message of the callback. */
static int make_room(struct perf_data_output *output, size_t size, bool full)
{
	const struct perf_data_room *room = output->room_keeper;

	if (room)
		output->error = room->make(room->context, size, full);
	return output->error;
}

static bool is_full(int error)
{
	return error == ENOSPC || error == EDQUOT;
}

static int write_all(struct perf_data_output *output, const void *data, size_t size,
		     uint64_t offset)
{
	const uint8_t *next = data;

	while (size) {
		ssize_t written = write_some(output, next, size, offset);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0 && is_full(errno) && output->room_keeper) {
			if (make_room(output, size, true))
				return output->error;
			continue;
		}
		if (written < 0)
			return failed(output, -errno, "write");
		next += written;
		offset += (uint64_t)written;
		size -= (size_t)written;
	}
	return 0;
}

/* Extends the data section to include what was just written. */
static int extend_data(struct perf_data_output *output, size_t size)
{
	uint64_t data_size;

	output->position += size;
	output->data_out += size;
	if (output->pipe || !output->started)
		return 0;
	data_size = output->position - output->data_offset;
	return write_all(output, &data_size, sizeof(data_size),
			 offsetof(struct perf_data_header, data) +
				 offsetof(struct perf_data_section, size));
}

static int append(struct perf_data_output *output, const void *data, size_t size)
{
	int error = make_room(output, size, false);

	if (!error)
		error = write_all(output, data, size, output->position);
	return error ? error : extend_data(output, size);
}

int perf_data_output_start(struct perf_data_output *output, const void *head, size_t size,
			   uint64_t data_offset)
{
	int error = append(output, head, size);

	output->data_offset = data_offset;
	output->data_out = 0;
	output->started = true;
	return error;
}

/* Writes one chunk as one record, flushed to its last byte, so that a reader with the record has
 * the whole chunk. The zstd stream continues in the next record. */
static int append_compressed(struct perf_data_output *output)
{
	struct perf_event_header header = { .type = PERF_DATA_COMPRESSED };
	ZSTD_inBuffer in = { output->block, output->used, 0 };
	ZSTD_outBuffer out = { output->packed, PERF_DATA_RECORD_MAX, sizeof(header) };
	size_t left = ZSTD_compressStream2(output->zstd, &out, &in, ZSTD_e_flush);

	if (ZSTD_isError(left) || left || in.pos != in.size)
		return failed(output, -EIO, "compress");
	header.size = (uint16_t)out.pos;
	memcpy(output->packed, &header, sizeof(header));
	return append(output, output->packed, out.pos);
}

int perf_data_output_flush(struct perf_data_output *output)
{
	int error;

	if (output->error || !output->used)
		return output->error;
	error = output->zstd ? append_compressed(output)
			     : append(output, output->block, output->used);
	output->used = 0;
	return error;
}

int perf_data_output_record(struct perf_data_output *output, const void *record, size_t size)
{
	if (output->used + size > output->room && perf_data_output_flush(output))
		return output->error;
	if (output->error)
		return output->error;
	if (size > output->room)
		return perf_data_output_plain(output, record, size);
	memcpy(output->block + output->used, record, size);
	output->used += size;
	output->records_in += size;
	return 0;
}

int perf_data_output_plain(struct perf_data_output *output, const void *record, size_t size)
{
	if (perf_data_output_flush(output))
		return output->error;
	output->records_in += size;
	return append(output, record, size);
}

uint64_t perf_data_output_bytes(const struct perf_data_output *output)
{
	return output->position + output->used;
}

unsigned int perf_data_output_ratio(const struct perf_data_output *output)
{
	uint64_t ratio = output->data_out ? output->records_in / output->data_out : 1;

	return ratio > 1 ? (unsigned int)ratio : 1;
}

int perf_data_output_finish(struct perf_data_output *output, const void *tail, size_t tail_size,
			    const void *features, size_t features_size, uint64_t features_offset)
{
	if (output->error)
		return output->error;
	if (write_all(output, tail, tail_size, output->position))
		return output->error;
	return write_all(output, features, features_size, features_offset);
}

int perf_data_output_patch(struct perf_data_output *output, uint64_t offset, const void *data,
			   size_t size)
{
	return output->error ? output->error : write_all(output, data, size, offset);
}

/* Removes the file if there was no space for any of it, unless the path leads to another file by
 * now. */
static void remove_empty(const struct perf_data_output *output)
{
	char target[PATH_MAX];
	struct stat opened, named;

	if (!output->pipe && output_path_is_file(output->path, target) &&
	    !fstat(output->fd, &opened) && !opened.st_size && !lstat(target, &named) &&
	    named.st_dev == opened.st_dev && named.st_ino == opened.st_ino)
		unlink(target);
}

int perf_data_output_close(struct perf_data_output *output)
{
	int error = output->error;

	if (output->fd >= 0)
		remove_empty(output);
	if (output->fd >= 0 && close(output->fd) && !error)
		error = failed(output, -errno, "close");
	ZSTD_freeCCtx(output->zstd);
	free(output->packed);
	free(output->block);
	free(output->path);
	free(output);
	return error;
}
