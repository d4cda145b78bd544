/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte buffer. If memory runs out, the buffer keeps its content and sets FAILED, which is
 * sticky: check it once at the end. Zeroed memory is an empty buffer. One thread at a time.
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

/* The slow path of bytes_make_room(). */
bool bytes_grow(struct bytes *bytes, size_t size);

/* Makes room for SIZE more bytes; false if FAILED is or becomes set. */
static inline bool bytes_make_room(struct bytes *bytes, size_t size)
{
	return (!bytes->failed && size <= bytes->room && bytes->size <= bytes->room - size) ||
	       bytes_grow(bytes, size);
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

/* Adds zeros up to a multiple of ALIGNMENT. */
static inline void bytes_pad(struct bytes *bytes, size_t alignment)
{
	bytes_add_zeros(bytes, (alignment - bytes->size % alignment) % alignment);
}

/* Size of a path of bytes_open_file(), NUL included. */
#define BYTES_PATH_SIZE 32

/*
 * Copies BYTES into an anonymous file (memfd_create(2)), for libraries that open paths. PATH is
 * valid while the returned descriptor, which the caller closes, is open. Or a negative errno, no
 * message.
 */
int bytes_open_file(const struct bytes *bytes, char path[BYTES_PATH_SIZE]);

#endif
