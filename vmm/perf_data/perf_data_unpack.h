/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zstd stream that runs through the compressed records of a perf.data
 * file. Hostile bytes; what one record may unpack to is bounded. One thread.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_UNPACK_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

struct perf_data_unpack {
	void *stream;            /* ZSTD_DCtx, made when the first compressed record comes */
	uint8_t *data;           /* unpacked bytes; owned */
	size_t start, end, room; /* of what is not delivered yet */
	bool good;               /* nothing was broken so far */
};

/* To the start of a stream; a stream before it is forgotten. 0. */
int perf_data_unpack_start(struct perf_data_unpack *unpack);

/* Unpacks the content of one compressed record. -EINVAL if it is broken or too large, -ENOMEM. */
int perf_data_unpack_feed(struct perf_data_unpack *unpack, struct span packed);

/*
 * The next whole record among the unpacked bytes, valid until the next feed;
 * false if there is none (yet). A broken one sets *ERROR.
 */
bool perf_data_unpack_next(struct perf_data_unpack *unpack, struct span *record, int *error);

/* Frees what it holds; zeroed, it holds nothing. */
void perf_data_unpack_free(struct perf_data_unpack *unpack);

#endif
