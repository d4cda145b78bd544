/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a of 64 bits (datatracker.ietf.org/doc/html/draft-eastlake-fnv): for tables, and to tell
 * contents apart. Whoever wants two that have the same one can make them. Any thread.
 */
#ifndef KVMSCOPE_SHARED_HASH_H
#define KVMSCOPE_SHARED_HASH_H

#include <stddef.h>
#include <stdint.h>

/* That of nothing. */
#define HASH_START 0xcbf29ce484222325ull

/* HASH with VALUE behind what it is of: a byte, or any number that is taken as one. */
static inline uint64_t hash_add(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * 0x100000001b3ull;
}

static inline uint64_t hash_add_bytes(uint64_t hash, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < size; i++)
		hash = hash_add(hash, at[i]);
	return hash;
}

/* Without the NUL at its end. */
static inline uint64_t hash_add_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = hash_add(hash, (uint8_t)*text);
	return hash;
}

#endif
