/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/perf_map.h"

#include <stdio.h>
#include <string.h>

static bool consume_line(struct span *text, struct span *line)
{
	const uint8_t *end = text->size ? memchr(text->data, '\n', text->size) : NULL;

	if (!end)
		return false;
	*line = span_of(text->data, (size_t)(end - text->data));
	*text = span_of(end + 1, text->size - line->size - 1);
	return true;
}

static int digit(uint8_t byte)
{
	if (byte >= '0' && byte <= '9')
		return byte - '0';
	byte |= 0x20;
	return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* A number and the space after it; some JITs write 0x before it. */
static bool consume_number(struct span *line, uint64_t *number)
{
	size_t first = line->size >= 2 && !memcmp(line->data, "0x", 2) ? 2 : 0, i = first;

	for (*number = 0; i < line->size && digit(line->data[i]) >= 0; i++) {
		if (*number >> 60)
			return false;
		*number = *number << 4 | (uint64_t)digit(line->data[i]);
	}
	if (i == first || i == line->size || line->data[i] != ' ')
		return false;
	*line = span_of(line->data + i + 1, line->size - i - 1);
	return true;
}

static void write_name(char name[PERF_MAP_NAME_MAX], struct span from)
{
	static const char cut[] = "...";
	size_t length = 0;

	for (size_t i = 0; i < from.size; i++) {
		bool plain = from.data[i] >= ' ' && from.data[i] <= '~';
		char text[5];

		snprintf(text, sizeof(text), plain ? "%c" : "\\x%02x", from.data[i]);
		if (length + strlen(text) + sizeof(cut) > PERF_MAP_NAME_MAX) {
			memcpy(name + length, cut, sizeof(cut));
			return;
		}
		memcpy(name + length, text, strlen(text));
		length += strlen(text);
	}
	name[length] = '\0';
}

bool perf_map_next(struct span *text, struct perf_map_line *line)
{
	struct span rest;

	while (consume_line(text, &rest)) {
		if (!consume_number(&rest, &line->start) || !consume_number(&rest, &line->length) ||
		    !rest.size || !line->length || line->start + line->length <= line->start)
			continue;
		write_name(line->name, rest);
		return true;
	}
	return false;
}
