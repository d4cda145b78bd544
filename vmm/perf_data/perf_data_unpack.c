// SPDX-License-Identifier: Apache-2.0
#include "vmm/perf_data/perf_data_unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "shared/error.h"
#include "vmm/perf_data/perf_data_format.h"

/* perf unpacks into as much as one ring buffer of its recording holds; no more than this is
 * believed. */
#define UNPACKED_MAX (64u << 20)
#define STEP         (256u << 10)

int perf_data_unpack_start(struct perf_data_unpack *unpack)
{
	if (unpack->stream)
		ZSTD_DCtx_reset(unpack->stream, ZSTD_reset_session_only);
	unpack->start = 0;
	unpack->end = 0;
	unpack->good = true;
	return 0;
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
		return fail(unpack, "it unpacks to more than can be true");
	larger = realloc(unpack->data, room);
	if (!larger)
		return error_set(-ENOMEM, "no memory to unpack perf.data");
	unpack->data = larger;
	unpack->room = room;
	return 0;
}

/* What is left of the feed before moves to the front. */
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
