/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/send_queue.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

static size_t padded(size_t size)
{
	return (size + 7) / 8 * 8;
}

void output_open(struct output *output, int fd)
{
	output->fd = fd;
	output->begin = output->end = output->boundary = 0;
}

void output_drop(struct output *output)
{
	output->end = output->boundary;
}

bool output_empty(const struct output *output)
{
	return output->begin == output->end;
}

size_t output_waiting(const struct output *output)
{
	return output->end - output->begin;
}

size_t output_room(const struct output *output)
{
	size_t room = OUTPUT_SIZE - (output->end - output->begin);

	if (room > AGENT_MESSAGE_MAX)
		room = AGENT_MESSAGE_MAX;
	/* a multiple of 8 is left free, so that a moved buffer stays aligned */
	room = room / 8 * 8;
	return room > sizeof(struct agent_message) + 8 ? room - sizeof(struct agent_message) - 8
						       : 0;
}

static void make_room(struct output *output, size_t size)
{
	size_t kept = output->begin / 8 * 8;

	if (OUTPUT_SIZE - output->end >= size)
		return;
	memmove(output->data, output->data + kept, output->end - kept);
	output->begin -= kept;
	output->boundary -= kept;
	output->end -= kept;
}

void *output_message(struct output *output, enum agent_message_type type, size_t size)
{
	struct agent_message *message;

	if (padded(size) > output_room(output))
		return NULL;
	make_room(output, sizeof(*message) + padded(size));
	message = (struct agent_message *)(output->data + output->end);
	*message = (struct agent_message){ .size = (uint32_t)(sizeof(*message) + padded(size)),
					   .type = type };
	memset(message->payload, 0, padded(size));
	output->end += message->size;
	return message->payload;
}

void output_shorten(struct output *output, void *payload, size_t size)
{
	struct agent_message *message =
		(struct agent_message *)((uint8_t *)payload - sizeof(*message));
	size_t cut = message->size - sizeof(*message) - padded(size);

	assert((uint8_t *)message + message->size == output->data + output->end);
	message->size -= (uint32_t)cut;
	output->end -= cut;
}

static void sent_bytes(struct output *output, size_t size)
{
	output->begin += size;
	while (output->boundary < output->begin)
		output->boundary +=
			((const struct agent_message *)(output->data + output->boundary))->size;
}

int output_flush(struct output *output)
{
	while (!output_empty(output)) {
		ssize_t sent = write(output->fd, output->data + output->begin,
				     output->end - output->begin);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN ? 0 : -errno;
		sent_bytes(output, (size_t)sent);
	}
	output->begin = output->end = output->boundary = 0;
	return 0;
}
