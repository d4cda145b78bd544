/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash functions: hash_add*() for comparing contents, the same in every process, for which anybody
 * can construct collisions; hash_mix*() for tables, with the process's random key. Any thread.
 */
#ifndef KVMSCOPE_SHARED_HASH_H
#define KVMSCOPE_SHARED_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Random, from the start of the process. */
extern uint64_t hash_key[2];

/*
 * Mixes VALUE into HASH so that every bit depends on it, as power-of-two tables need. A guest that
 * chooses keys cannot predict collisions, because each factor contains half of the secret key.
 * (The folded product of wyhash and foldhash: as fast as an unkeyed multiplication, which SipHash
 * is not. Under one key in some hundred its low bits alone would repeat for keys at equal
 * distances, such as addresses of pages: the second product depends on all of its bits.)
 */
static inline uint64_t hash_mix(uint64_t hash, uint64_t value)
{
	unsigned __int128 product = (unsigned __int128)(hash ^ hash_key[0]) * (value ^ hash_key[1]);

	hash = ((uint64_t)product ^ (uint64_t)(product >> 64)) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 32);
}

static inline uint64_t hash_mix_bytes(uint64_t hash, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	uint64_t word = 0;

	hash = hash_mix(hash, size);
	for (; size > sizeof(word); size -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = hash_mix(hash, word);
	}
	word = 0;
	memcpy(&word, at, size);
	return hash_mix(hash, word);
}

#endif
