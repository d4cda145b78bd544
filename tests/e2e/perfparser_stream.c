/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/perfparser_stream.h"

#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shared/read_file.h"

#define MAGIC      "QPERFSTREAM" /* with its NUL, then the version of QDataStream */
#define STREAM_MAX (64u << 20)
#define IDS_MAX    100000

enum { LOCATION = 3, SYMBOL = 4, STRING = 5, SAMPLE = 13 };

struct stream {
	char *strings[IDS_MAX];
	struct {
		int32_t parent, name, binary;
		bool has_symbol;
	} locations[IDS_MAX];
};

/* A message, of which numbers are read one after the other. */
struct message {
	const char *next;
	size_t left;
};

static uint32_t take(struct message *message)
{
	uint32_t value = 0;

	if (message->left >= sizeof(value)) {
		memcpy(&value, message->next, sizeof(value));
		message->next += sizeof(value);
		message->left -= sizeof(value);
	} else {
		message->left = 0;
	}
	return be32toh(value);
}

/* An id that this reader has room for; the others are as if unknown. */
static uint32_t take_id(struct message *message)
{
	uint32_t id = take(message);

	return id < IDS_MAX ? id : IDS_MAX - 1;
}

static void read_string(struct stream *stream, struct message *message)
{
	uint32_t id = take_id(message), size = take(message);

	free(stream->strings[id]);
	stream->strings[id] = strndup(message->next, size < message->left ? size : message->left);
}

/* Address (8 bytes), file, pid, line, column, parent. */
static void read_location(struct stream *stream, struct message *message)
{
	uint32_t id = take_id(message);

	for (unsigned int i = 0; i < 6; i++)
		take(message);
	stream->locations[id].parent = (int32_t)take(message);
}

static void read_symbol(struct stream *stream, struct message *message)
{
	uint32_t id = take_id(message);

	stream->locations[id].has_symbol = true;
	stream->locations[id].name = (int32_t)take(message);
	stream->locations[id].binary = (int32_t)take(message);
}

static const char *string_of(const struct stream *stream, int32_t id)
{
	return id >= 0 && id < IDS_MAX && stream->strings[id] ? stream->strings[id] : "";
}

/* Pid, tid, time (8 bytes), cpu, number of frames, their locations. */
static uint32_t read_sample(struct message *message)
{
	for (unsigned int i = 0; i < 5; i++)
		take(message);
	return take(message) ? take_id(message) : IDS_MAX - 1;
}

static void read_message(struct stream *stream, struct message message, uint32_t *sample)
{
	char type = *message.next++;

	message.left--;
	*sample = IDS_MAX;
	if (type == STRING)
		read_string(stream, &message);
	else if (type == LOCATION)
		read_location(stream, &message);
	else if (type == SYMBOL)
		read_symbol(stream, &message);
	else if (type == SAMPLE)
		*sample = read_sample(&message);
}

/* The location of a frame, or the function that it is in. */
static void report(const struct stream *stream, uint32_t id,
		   void (*each)(void *context, const char *name, const char *binary), void *context)
{
	int32_t parent = stream->locations[id].parent;

	if (parent >= 0 && parent < IDS_MAX && stream->locations[parent].has_symbol)
		id = (uint32_t)parent;
	if (stream->locations[id].has_symbol)
		each(context, string_of(stream, stream->locations[id].name),
		     string_of(stream, stream->locations[id].binary));
	else
		each(context, "", "");
}

bool perfparser_each_sample(const char *path,
			    void (*each)(void *context, const char *name, const char *binary),
			    void *context)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	char *bytes = NULL;
	size_t size = 0, next = sizeof(MAGIC) + sizeof(uint32_t);
	bool valid = !read_file(path, STREAM_MAX, &bytes, &size) && size > next &&
		     !memcmp(bytes, MAGIC, sizeof(MAGIC));

	while (valid && size - next > sizeof(uint32_t)) {
		uint32_t length, sample;

		memcpy(&length, bytes + next, sizeof(length));
		length = le32toh(length);
		next += sizeof(length);
		valid = length && length <= size - next;
		if (!valid)
			break;
		read_message(stream, (struct message){ bytes + next, length }, &sample);
		if (sample < IDS_MAX)
			report(stream, sample, each, context);
		next += length;
	}
	for (size_t i = 0; i < IDS_MAX; i++)
		free(stream->strings[i]);
	free(stream);
	free(bytes);
	return valid;
}
