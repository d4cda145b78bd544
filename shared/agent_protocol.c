/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/agent_protocol.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Bytes that identify a first message: header and magic. */
#define FIRST_SIZE (sizeof(struct agent_message) + sizeof(uint64_t))

static size_t available(const struct agent_stream *stream)
{
	return stream->end - stream->begin;
}

uint8_t *agent_stream_room(struct agent_stream *stream, size_t *size)
{
	if (stream->begin) {
		memmove(stream->data, stream->data + stream->begin, available(stream));
		stream->end -= stream->begin;
		stream->begin = 0;
	}
	*size = sizeof(stream->data) - stream->end;
	return stream->data + stream->end;
}

void agent_stream_received(struct agent_stream *stream, size_t size)
{
	assert(size <= sizeof(stream->data) - stream->end);
	stream->end += size;
}

void agent_stream_reset(struct agent_stream *stream)
{
	stream->begin = stream->end = 0;
	stream->in_step = false;
}

static bool is_header(const struct agent_message *header)
{
	return header->size >= sizeof(*header) && header->size <= AGENT_MESSAGE_MAX &&
	       !(header->size % 8);
}

static bool is_first(const uint8_t *bytes, enum agent_message_type type)
{
	struct agent_message header;
	uint64_t magic;

	memcpy(&header, bytes, sizeof(header));
	memcpy(&magic, bytes + sizeof(header), sizeof(magic));
	return magic == AGENT_MAGIC && header.type == type && is_header(&header) &&
	       header.size >= FIRST_SIZE;
}

/* Skips to a first message. The bytes that remain may be its start. */
static bool find_first(struct agent_stream *stream, enum agent_message_type first)
{
	for (; available(stream) >= FIRST_SIZE; stream->begin++) {
		if (!is_first(stream->data + stream->begin, first))
			continue;
		stream->in_step = true;
		return true;
	}
	return false;
}

/* Messages are returned in place, so the next one must begin at a multiple of 8. */
static void align(struct agent_stream *stream)
{
	if (!(stream->begin % 8))
		return;
	memmove(stream->data, stream->data + stream->begin, available(stream));
	stream->end -= stream->begin;
	stream->begin = 0;
}

int agent_stream_next(struct agent_stream *stream, enum agent_message_type first,
		      const struct agent_message **message)
{
	const struct agent_message *header;

	if (!stream->in_step && !find_first(stream, first))
		return 0;
	align(stream);
	header = (const void *)(stream->data + stream->begin);
	if (available(stream) < sizeof(*header))
		return 0;
	if (!is_header(header)) {
		stream->in_step = false;
		stream->begin++;
		return -EPROTO;
	}
	if (available(stream) < header->size)
		return 0;
	stream->begin += header->size;
	*message = header;
	return 1;
}
