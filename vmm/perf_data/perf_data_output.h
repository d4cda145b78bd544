/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of a perf.data stream go: blocks of whole records into the
 * data section of a file, or down a pipe, as they are or compressed.
 *
 * What makes a file outlive its writer: the data section is the last thing
 * in it while it grows, and its size in the header is moved by one pwrite()
 * of 8 bytes, only after the bytes themselves are written. One thread.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_OUTPUT_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The most that one compressed record unpacks to, which readers are told in
 * FEATURE_COMPRESSED. Small enough that what can't be compressed at all
 * still fits one record.
 */
#define PERF_DATA_OUTPUT_CHUNK (60u << 10)

/* Who keeps room for a file: somebody that has older ones which may go. */
struct perf_data_room {
	/*
	 * SIZE bytes are about to be written; FULL: the file system has just refused them. 0: they
	 * may be, or (FULL) something was freed and it is to be tried again. Else -ENOSPC with its
	 * message, and the file ends.
	 */
	int (*make)(void *context, uint64_t size, bool full);
	void *context;
};

struct perf_data_output;

/*
 * Opens PATH: "-" and whatever is there and no regular file are written as a
 * pipe; a regular file is kept as PATH.old, as perf record does it, but for an
 * empty one. Links stay: the file that they lead to is replaced. The errors of
 * open() and rename(), and -ENOMEM.
 */
int perf_data_output_open(struct perf_data_output **output, const char *path,
			  unsigned int compression);

/* Asks ROOM (not copied) before each block from here on. A file, not a pipe. */
void perf_data_output_set_room(struct perf_data_output *output, const struct perf_data_room *room);

/* PATH as it is shown to the user: "-" is standard output. Any thread. */
const char *perf_data_output_name(const char *path);

/* Is it pipe mode: no seeking, no header to come back to? */
bool perf_data_output_is_pipe(const struct perf_data_output *output);

/*
 * Writes HEAD, the start of the file up to and with the first records, at
 * once. The data section starts DATA_OFFSET bytes into it. Before anything else.
 */
int perf_data_output_start(struct perf_data_output *output, const void *head, size_t size,
			   uint64_t data_offset);

/* Appends one record to the block and writes the block if it is full. SIZE at most 65535. */
int perf_data_output_record(struct perf_data_output *output, const void *record, size_t size);

/* The same for a record that must not be compressed: the block before it is written first. */
int perf_data_output_plain(struct perf_data_output *output, const void *record, size_t size);

/* Writes the block: from here on it is part of the file. */
int perf_data_output_flush(struct perf_data_output *output);

/* Bytes of the file: what was written and what is in the block. */
uint64_t perf_data_output_bytes(const struct perf_data_output *output);

/* Bytes of records that went in for each byte of data that came out, at least 1. */
unsigned int perf_data_output_ratio(const struct perf_data_output *output);

/*
 * Puts TAIL behind the data section, then the SIZE bytes HEADER over the
 * start of the file. TAIL is made with offsets from perf_data_output_bytes()
 * after a flush. Not in pipe mode.
 */
int perf_data_output_finish(struct perf_data_output *output, const void *tail, size_t tail_size,
			    const void *features, size_t features_size, uint64_t features_offset);

/* Writes DATA over what the head, or an earlier call, has at OFFSET of the file. Not in pipe mode.
 */
int perf_data_output_patch(struct perf_data_output *output, uint64_t offset, const void *data,
			   size_t size);

/* Closes the file and frees. Returns the first error there was, or 0. A file that has nothing for
 * it is removed. */
int perf_data_output_close(struct perf_data_output *output);

#endif
