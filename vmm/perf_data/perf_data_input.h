/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a perf.data file or pipe, in order, in pieces that are looked at
 * as a whole. Read, never mapped: a file that shrinks under us is short, not
 * a signal. One thread.
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
	uint64_t size;     /* of a seekable file; UINT64_MAX of a pipe */
	uint64_t position; /* in the file, of the next byte */
	uint64_t end;      /* of the range that is read */
	uint8_t *buffer;
	size_t start, filled; /* of the buffer: bytes not taken yet */
	int error;            /* of reading; 0 at the plain end */
};

/* "-" is standard input; what kvmscoped has renamed is found (recording_name.h). The errors of
 * open(), -EISDIR, -ENOMEM. */
int perf_data_input_open(struct perf_data_input *input, const char *path);
void perf_data_input_close(struct perf_data_input *input);

/* Copies SIZE bytes at OFFSET of a seekable file. False: not there. */
bool perf_data_input_at(struct perf_data_input *input, uint64_t offset, void *to, size_t size);

/* The range [START, END) comes next; of a pipe only END counts. */
void perf_data_input_range(struct perf_data_input *input, uint64_t start, uint64_t end);

/* The next SIZE bytes (at most 64 KiB) without taking them; false if there are fewer. Valid until
 * the next call. */
bool perf_data_input_peek(struct perf_data_input *input, size_t size, struct span *bytes);

/* Takes SIZE bytes, seen or not. False if there are fewer. */
bool perf_data_input_skip(struct perf_data_input *input, uint64_t size);

/* Bytes of the range that nobody took yet, at most those that are there: 0 at its end. */
bool perf_data_input_at_end(struct perf_data_input *input);

#endif
