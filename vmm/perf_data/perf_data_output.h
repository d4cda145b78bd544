/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte output of the perf.data writer: blocks of whole records, compressed or not, into the data
 * section of a file or into a pipe.
 *
 * A file stays valid if its writer is killed: while it grows, the data section is the last part of
 * the file, and its size in the header is updated by one pwrite() of 8 bytes, after the bytes
 * themselves are written. One thread.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_OUTPUT_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes that one compressed record unpacks to; FEATURE_COMPRESSED reports it to readers. Small
 * enough that incompressible data still fits one record. */
#define PERF_DATA_OUTPUT_CHUNK (60u << 10)

/* Frees disk space for a file, e.g. by removing older recordings. */
struct perf_data_room {
	/*
	 * Called before SIZE bytes are written; FULL: the file system has just refused them. 0:
	 * write them, or (FULL) something was freed and the write is repeated. -ENOSPC, with its
	 * message: the file ends here.
	 */
	int (*make)(void *context, uint64_t size, bool full);
	void *context;
};

struct perf_data_output;

/*
 * Opens PATH. "-", and existing paths that are not regular files, are written in pipe mode. An
 * existing file that is not empty is kept as PATH.old, as perf record does. Links are followed
 * (output_path.h) and stay. The errors of open() and rename(), and -ENOMEM.
 */
int perf_data_output_open(struct perf_data_output **output, const char *path,
			  unsigned int compression);

/* Calls ROOM (not copied) before each block from now on. Not in pipe mode. */
void perf_data_output_set_room(struct perf_data_output *output, const struct perf_data_room *room);

/* PATH as messages show it: "standard output" for "-". Any thread. */
const char *perf_data_output_name(const char *path);

/* True in pipe mode: no seeking, and no header to rewrite. */
bool perf_data_output_is_pipe(const struct perf_data_output *output);

/* Writes HEAD, the start of the file with the first records, at once. The data section starts
 * DATA_OFFSET bytes into it. Called first. */
int perf_data_output_start(struct perf_data_output *output, const void *head, size_t size,
			   uint64_t data_offset);

/* Appends one record of at most 65535 bytes to the block; writes the block when it is full. */
int perf_data_output_record(struct perf_data_output *output, const void *record, size_t size);

/* The same for a record that must not be compressed: writes the block first, then the record. */
int perf_data_output_plain(struct perf_data_output *output, const void *record, size_t size);

/* Writes the block: from then on it is part of the file. */
int perf_data_output_flush(struct perf_data_output *output);

/* Bytes of the file, the unwritten block included. */
uint64_t perf_data_output_bytes(const struct perf_data_output *output);

/* The compression ratio so far: bytes of records per byte of data, at least 1. */
unsigned int perf_data_output_ratio(const struct perf_data_output *output);

/*
 * Writes TAIL after the data section, then FEATURES over the header at FEATURES_OFFSET. Offsets in
 * TAIL are based on perf_data_output_bytes() after a flush. Not in pipe mode.
 */
int perf_data_output_finish(struct perf_data_output *output, const void *tail, size_t tail_size,
			    const void *features, size_t features_size, uint64_t features_offset);

/* Overwrites part of the head with DATA. Not in pipe mode. */
int perf_data_output_patch(struct perf_data_output *output, uint64_t offset, const void *data,
			   size_t size);

/* Closes the file and frees OUTPUT; a file that is still empty is removed. Returns the first error.
 */
int perf_data_output_close(struct perf_data_output *output);

#endif
