/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted bytes and checked little-endian reads from them, for all parsers of files and guest
 * data. Offsets and sizes are in bytes. A read that is not completely inside the span returns false
 * and leaves *VALUE unchanged. Owns nothing. Any thread.
 */
#ifndef KVMSCOPE_SHARED_SPAN_H
#define KVMSCOPE_SHARED_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
	const uint8_t *data;
	size_t size;
};

static inline struct span span_of(const void *data, size_t size)
{
	return (struct span){ .data = data, .size = size };
}

/* True if [offset, offset + size) is inside the span. */
static inline bool span_contains(struct span span, uint64_t offset, uint64_t size)
{
	return size <= span.size && offset <= span.size - size;
}

/* The part [offset, offset + size) of the span into *PART. */
static inline bool span_part(struct span span, uint64_t offset, uint64_t size, struct span *part)
{
	if (!span_contains(span, offset, size))
		return false;
	*part = span_of(span.data + offset, size);
	return true;
}

/* Copies SIZE bytes at OFFSET to TO. */
static inline bool span_copy(struct span span, uint64_t offset, void *to, size_t size)
{
	if (!span_contains(span, offset, size))
		return false;
	if (size)
		memcpy(to, span.data + offset, size);
	return true;
}

static inline bool span_u8(struct span span, uint64_t offset, uint8_t *value)
{
	return span_copy(span, offset, value, sizeof(*value));
}

static inline bool span_u16(struct span span, uint64_t offset, uint16_t *value)
{
	return span_copy(span, offset, value, sizeof(*value));
}

static inline bool span_u32(struct span span, uint64_t offset, uint32_t *value)
{
	return span_copy(span, offset, value, sizeof(*value));
}

static inline bool span_u64(struct span span, uint64_t offset, uint64_t *value)
{
	return span_copy(span, offset, value, sizeof(*value));
}

/* The NUL-terminated string at OFFSET, or NULL if it does not end inside the span. */
static inline const char *span_string(struct span span, uint64_t offset)
{
	if (offset >= span.size || !memchr(span.data + offset, '\0', span.size - offset))
		return NULL;
	return (const char *)span.data + offset;
}

#endif
