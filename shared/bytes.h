/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing run of bytes, for putting records and sections together. Without
 * memory it stays as it is and remembers that; check FAILED once at the end.
 */
#ifndef KVMSCOPE_SHARED_BYTES_H
#define KVMSCOPE_SHARED_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
	uint8_t *data; /* owned; free() it */
	size_t size, room;
	bool failed;
};

static inline bool bytes_make_room(struct bytes *bytes, size_t size)
{
	size_t room = bytes->room ? bytes->room : 256;
	uint8_t *larger;

	if (bytes->failed)
		return false;
	if (bytes->data && bytes->size + size <= bytes->room)
		return true;
	while (room < bytes->size + size)
		room *= 2;
	larger = realloc(bytes->data, room);
	bytes->failed = !larger;
	if (!larger)
		return false;
	bytes->data = larger;
	bytes->room = room;
	return true;
}

static inline void bytes_add(struct bytes *bytes, const void *data, size_t size)
{
	if (!size || !bytes_make_room(bytes, size))
		return;
	memcpy(bytes->data + bytes->size, data, size);
	bytes->size += size;
}

static inline void bytes_add_zeros(struct bytes *bytes, size_t size)
{
	if (!size || !bytes_make_room(bytes, size))
		return;
	memset(bytes->data + bytes->size, 0, size);
	bytes->size += size;
}

static inline void bytes_add_u32(struct bytes *bytes, uint32_t value)
{
	bytes_add(bytes, &value, sizeof(value));
}

static inline void bytes_add_u64(struct bytes *bytes, uint64_t value)
{
	bytes_add(bytes, &value, sizeof(value));
}

static inline void bytes_pad(struct bytes *bytes, size_t alignment)
{
	bytes_add_zeros(bytes, (alignment - bytes->size % alignment) % alignment);
}

#endif
