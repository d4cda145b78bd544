/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash functions, for tables and for comparing contents. They are not cryptographic: anybody can
 * construct collisions. Any thread.
 */
#ifndef KVMSCOPE_SHARED_HASH_H
#define KVMSCOPE_SHARED_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The 64-bit FNV-1a hash of no bytes (datatracker.ietf.org/doc/html/draft-eastlake-fnv). */
#define HASH_START 0xcbf29ce484222325ull

/* Continues HASH with VALUE: a byte, or any number that is hashed as one unit. */
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

/* Without the terminating NUL. */
static inline uint64_t hash_add_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = hash_add(hash, (uint8_t)*text);
	return hash;
}

/* Mixes VALUE into HASH so that every bit depends on it, as power-of-two tables need. */
static inline uint64_t hash_mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 29);
}

#endif
