/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kallsyms_image.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_CODE                                                                                 \
	0x80 /* the code of TOKEN; other codes above ASCII are a doubled letter or unused */
#define TOKEN "function_"

struct writer {
	enum kallsyms_layout layout;
	const struct kallsyms_symbol *symbols;
	size_t count;
	uint64_t base, gva;
	uint8_t *to;
	size_t size, capacity;
	uint32_t *markers;
};

static void put(struct writer *writer, const void *bytes, size_t size)
{
	if (writer->size + size > writer->capacity)
		abort();
	memcpy(writer->to + writer->size, bytes, size);
	writer->size += size;
}

static void put_u32(struct writer *writer, uint32_t value)
{
	put(writer, &value, sizeof(value));
}

static void put_u64(struct writer *writer, uint64_t value)
{
	put(writer, &value, sizeof(value));
}

static void pad(struct writer *writer)
{
	size_t alignment =
		writer->layout == KALLSYMS_7_2 || writer->layout == KALLSYMS_32BIT ? 4 : 8;

	while (writer->size % alignment)
		put(writer, "", 1);
}

static size_t compress(const struct kallsyms_symbol *symbol, uint8_t *to)
{
	const char *name = symbol->name;
	size_t size = 0;

	to[size++] = (uint8_t)symbol->type;
	while (*name) {
		if (!strncmp(name, TOKEN, strlen(TOKEN))) {
			to[size++] = TOKEN_CODE;
			name += strlen(TOKEN);
		} else {
			to[size++] = (uint8_t)*name++;
		}
	}
	return size;
}

static void put_names(struct writer *writer)
{
	size_t start = writer->size;
	uint8_t bytes[512];

	for (size_t i = 0; i < writer->count; i++) {
		size_t size = compress(&writer->symbols[i], bytes);
		uint8_t length[2] = { (uint8_t)size, 0 };
		bool is_long = size > 0x7f && writer->layout != KALLSYMS_5_10;

		if (i % 256 == 0)
			writer->markers[i / 256] = (uint32_t)(writer->size - start);
		if (is_long) {
			length[0] = (uint8_t)(size | 0x80);
			length[1] = (uint8_t)(size >> 7);
		}
		put(writer, length, is_long ? 2 : 1);
		put(writer, bytes, size);
	}
	pad(writer);
}

static void put_tokens(struct writer *writer)
{
	size_t start = writer->size;
	uint16_t index[256];

	for (unsigned int code = 0; code < 256; code++) {
		char token[16] = "";

		index[code] = (uint16_t)(writer->size - start);
		if (code == TOKEN_CODE)
			strcpy(token, TOKEN);
		else if (code < 0x80 && isgraph((int)code))
			snprintf(token, sizeof(token), "%c", (char)code);
		else if (code > 0xf0)
			strcpy(token, "__");
		put(writer, token, strlen(token) + 1);
	}
	pad(writer);
	put(writer, index, sizeof(index));
	pad(writer);
}

/* Per-CPU symbols have low addresses and are stored as they are. */
static uint32_t offset_of(const struct writer *writer, uint64_t address)
{
	if (writer->layout == KALLSYMS_7_2)
		return (uint32_t)(address - (writer->gva + writer->size));
	if (writer->layout == KALLSYMS_32BIT)
		return (uint32_t)(address - writer->base);
	return (uint32_t)(address < writer->base ? address : writer->base - 1 - address);
}

static void put_addresses(struct writer *writer)
{
	bool absolute = writer->layout == KALLSYMS_ABSOLUTE_BEFORE;

	for (size_t i = 0; i < writer->count; i++) {
		if (absolute)
			put_u64(writer, writer->symbols[i].address);
		else
			put_u32(writer, offset_of(writer, writer->symbols[i].address));
	}
	pad(writer);
	if (writer->layout == KALLSYMS_32BIT)
		put_u32(writer, (uint32_t)writer->base);
	else if (!absolute && writer->layout != KALLSYMS_7_2)
		put_u64(writer, writer->base);
}

/*
 * A reader by address does not depend on the order. The bytes must not look like the end of a
 * table.
 */
static void put_sequence(struct writer *writer)
{
	for (size_t i = 0; i < writer->count; i++) {
		uint8_t bytes[3] = { (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i };

		put(writer, bytes, sizeof(bytes));
	}
	pad(writer);
}

static void put_markers(struct writer *writer)
{
	for (size_t i = 0; i < (writer->count + 255) / 256; i++)
		put_u32(writer, writer->markers[i]);
	pad(writer);
}

size_t kallsyms_image_write(enum kallsyms_layout layout, const struct kallsyms_symbol *symbols,
			    size_t count, uint64_t relative_base, uint64_t gva, uint8_t *to,
			    size_t capacity)
{
	bool addresses_first = layout != KALLSYMS_6_12 && layout != KALLSYMS_7_2;
	struct writer writer = { .layout = layout,
				 .symbols = symbols,
				 .count = count,
				 .base = relative_base,
				 .gva = gva,
				 .to = to,
				 .capacity = capacity };

	writer.markers = calloc(count / 256 + 1, sizeof(*writer.markers));
	if (!writer.markers)
		abort();
	if (addresses_first)
		put_addresses(&writer);
	put_u32(&writer, (uint32_t)count);
	pad(&writer);
	put_names(&writer);
	put_markers(&writer);
	if (layout == KALLSYMS_6_2)
		put_sequence(&writer);
	put_tokens(&writer);
	if (!addresses_first) {
		put_addresses(&writer);
		put_sequence(&writer);
	}
	free(writer.markers);
	return writer.size;
}
