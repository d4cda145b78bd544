/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/aml.h"

#include <assert.h>
#include <string.h>

enum {
	OP_NAME = 0x08,
	OP_BYTE = 0x0a,
	OP_WORD = 0x0b,
	OP_DWORD = 0x0c,
	OP_STRING = 0x0d,
	OP_QWORD = 0x0e,
	OP_SCOPE = 0x10,
	OP_BUFFER = 0x11,
	OP_PACKAGE = 0x12,
	OP_EXTENDED = 0x5b,
	OP_EXTENDED_DEVICE = 0x82,
};

#define NAME_SEGMENT 4
/* PkgLength in its three-byte form: 4 bits in the first byte, 8 in each of the others. */
#define PACKAGE_LENGTH_BYTES 3
#define PACKAGE_LENGTH_MAX   0xfffff
#define PACKAGE_LENGTH_LEAD  0x80 /* two bytes follow */

static void put(struct aml *aml, const void *bytes, size_t size)
{
	if (aml->full || size > aml->capacity - aml->size) {
		aml->full = true;
		return;
	}
	memcpy(aml->data + aml->size, bytes, size);
	aml->size += size;
}

static void put_8(struct aml *aml, uint8_t value)
{
	put(aml, &value, sizeof(value));
}

static void put_16(struct aml *aml, uint16_t value)
{
	put(aml, &value, sizeof(value));
}

static void put_32(struct aml *aml, uint32_t value)
{
	put(aml, &value, sizeof(value));
}

static void put_segment(struct aml *aml, const char *name)
{
	char segment[NAME_SEGMENT] = { '_', '_', '_', '_' };

	if (*name == '\\')
		put_8(aml, (uint8_t)*name++);
	assert(strlen(name) <= NAME_SEGMENT);
	for (size_t i = 0; name[i]; i++)
		segment[i] = name[i];
	put(aml, segment, sizeof(segment));
}

static aml_mark begin(struct aml *aml)
{
	const uint8_t length[PACKAGE_LENGTH_BYTES] = { 0 };
	aml_mark mark = aml->size;

	put(aml, length, sizeof(length));
	return mark;
}

void aml_end(struct aml *aml, aml_mark mark)
{
	size_t length = aml->size - mark;

	if (aml->full)
		return;
	assert(length <= PACKAGE_LENGTH_MAX);
	aml->data[mark] = PACKAGE_LENGTH_LEAD | (length & 0xf);
	aml->data[mark + 1] = (uint8_t)(length >> 4);
	aml->data[mark + 2] = (uint8_t)(length >> 12);
}

aml_mark aml_scope(struct aml *aml, const char *name)
{
	aml_mark mark;

	put_8(aml, OP_SCOPE);
	mark = begin(aml);
	put_segment(aml, name);
	return mark;
}

aml_mark aml_device(struct aml *aml, const char *name)
{
	aml_mark mark;

	put_8(aml, OP_EXTENDED);
	put_8(aml, OP_EXTENDED_DEVICE);
	mark = begin(aml);
	put_segment(aml, name);
	return mark;
}

aml_mark aml_package(struct aml *aml, uint8_t count)
{
	aml_mark mark;

	put_8(aml, OP_PACKAGE);
	mark = begin(aml);
	put_8(aml, count);
	return mark;
}

void aml_name(struct aml *aml, const char *name)
{
	put_8(aml, OP_NAME);
	put_segment(aml, name);
}

void aml_integer(struct aml *aml, uint64_t value)
{
	if (value <= 1) {
		put_8(aml, (uint8_t)value); /* ZeroOp and OneOp are their own values */
	} else if (value <= UINT8_MAX) {
		put_8(aml, OP_BYTE);
		put_8(aml, (uint8_t)value);
	} else if (value <= UINT16_MAX) {
		put_8(aml, OP_WORD);
		put_16(aml, (uint16_t)value);
	} else if (value <= UINT32_MAX) {
		put_8(aml, OP_DWORD);
		put_32(aml, (uint32_t)value);
	} else {
		put_8(aml, OP_QWORD);
		put(aml, &value, sizeof(value));
	}
}

void aml_string(struct aml *aml, const char *text)
{
	put_8(aml, OP_STRING);
	put(aml, text, strlen(text) + 1);
}

static uint32_t hex_digit(char digit)
{
	return (uint32_t)(digit <= '9' ? digit - '0' : digit - 'A' + 10);
}

/* Five bits per letter, four per digit, most significant byte first. */
void aml_eisa_id(struct aml *aml, const char *id)
{
	uint32_t value = 0;

	assert(strlen(id) == 7);
	for (int i = 0; i < 3; i++)
		value = value << 5 | (uint32_t)(id[i] - '@');
	for (int i = 3; i < 7; i++)
		value = value << 4 | hex_digit(id[i]);
	put_8(aml, OP_DWORD);
	put_32(aml, __builtin_bswap32(value));
}

/* A buffer: its length as a 16-bit integer, which aml_resources_end() sets, then its bytes. */
aml_mark aml_resources(struct aml *aml)
{
	aml_mark mark;

	put_8(aml, OP_BUFFER);
	mark = begin(aml);
	put_8(aml, OP_WORD);
	put_16(aml, 0);
	return mark;
}

void aml_resources_end(struct aml *aml, aml_mark mark)
{
	size_t length_at = mark + PACKAGE_LENGTH_BYTES + 1;
	uint16_t length;

	put_8(aml, 0x79); /* end tag */
	put_8(aml, 0);    /* no checksum */
	aml_end(aml, mark);
	if (aml->full)
		return;
	length = (uint16_t)(aml->size - length_at - sizeof(length));
	memcpy(aml->data + length_at, &length, sizeof(length));
}

void aml_resource_io(struct aml *aml, uint16_t start, uint8_t size)
{
	put_8(aml, 0x47);
	put_8(aml, 1); /* 16-bit decode */
	put_16(aml, start);
	put_16(aml, start);
	put_8(aml, 1); /* alignment */
	put_8(aml, size);
}

void aml_resource_irq(struct aml *aml, unsigned int irq)
{
	assert(irq < 16);
	put_8(aml, 0x22);
	put_16(aml, (uint16_t)(1u << irq));
}

void aml_resource_memory(struct aml *aml, uint32_t start, uint32_t size)
{
	put_8(aml, 0x86);
	put_16(aml, 9);
	put_8(aml, 1); /* writable */
	put_32(aml, start);
	put_32(aml, size);
}

void aml_resource_interrupt(struct aml *aml, uint32_t gsi)
{
	put_8(aml, 0x89);
	put_16(aml, 6);
	put_8(aml, 1); /* consumer, level, active high, exclusive */
	put_8(aml, 1);
	put_32(aml, gsi);
}
