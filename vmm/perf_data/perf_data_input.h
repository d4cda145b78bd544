/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte input of the perf.data reader: buffered reads from a file or pipe, and the unpacking of
 * compressed records. Files are read, never mapped: one that shrinks meanwhile is a short read
 * instead of SIGBUS. One thread.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_INPUT_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

struct perf_data_input {
	int fd;
	bool seekable;
	uint64_t size;     /* of a seekable file; UINT64_MAX for a pipe */
	uint64_t position; /* in the file, of the next byte */
	uint64_t end;      /* of the range being read */
	uint8_t *buffer;
	size_t start, filled; /* unread bytes of the buffer */
	int error;            /* of reading; 0 at the end of the file */
};

/* "-" is standard input; recordings that kvmscoped renamed are found (recording_name.h). The errors
 * of open(), -EISDIR, -ENOMEM. */
int perf_data_input_open(struct perf_data_input *input, const char *path);
void perf_data_input_close(struct perf_data_input *input);

/* Copies SIZE bytes at OFFSET of a seekable file; false if they are not there. */
bool perf_data_input_at(struct perf_data_input *input, uint64_t offset, void *to, size_t size);

/* Continues with the range [START, END); only END applies to a pipe. */
void perf_data_input_range(struct perf_data_input *input, uint64_t start, uint64_t end);

/* The next SIZE bytes (at most 64 KiB) without consuming them, valid until the next call; false if
 * there are fewer. */
bool perf_data_input_peek(struct perf_data_input *input, size_t size, struct span *bytes);

/* Consumes SIZE bytes; false if there are fewer. */
bool perf_data_input_skip(struct perf_data_input *input, uint64_t size);

/* True if no byte of the range is left, or none can be read. */
bool perf_data_input_at_end(struct perf_data_input *input);

/* Unpacks PERF_RECORD_COMPRESSED: one zstd stream that continues from record to record, and whose
 * content is records that may span two of them. */
struct perf_data_unpack {
	void *stream;            /* ZSTD_DCtx, created with the first compressed record */
	uint8_t *data;           /* unpacked bytes; owned */
	size_t start, end, room; /* of the bytes that were not returned yet */
	bool good;               /* nothing was broken so far */
};

/* Starts a new stream and drops what is left of the last one. */
void perf_data_unpack_start(struct perf_data_unpack *unpack);

/* Unpacks the content of one compressed record. -EINVAL if it is broken or too large, -ENOMEM. */
int perf_data_unpack_feed(struct perf_data_unpack *unpack, struct span packed);

/* The next whole record, valid until the next feed; false if there is none yet. A broken one sets
 * *ERROR. */
bool perf_data_unpack_next(struct perf_data_unpack *unpack, struct span *record, int *error);

/* Frees what it holds; zeroed, it holds nothing. */
void perf_data_unpack_free(struct perf_data_unpack *unpack);

#endif
