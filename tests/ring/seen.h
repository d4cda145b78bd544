/* SPDX-License-Identifier: Apache-2.0 */
/* The states that a search has visited, by a 64-bit hash. */
#ifndef KVMSCOPE_TESTS_RING_SEEN_H
#define KVMSCOPE_TESTS_RING_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seen {
	uint64_t hash;        /* 0: free */
	double interleavings; /* from there to the end */
};

struct seen_table {
	struct seen *slots;
	uint64_t size, used;
};

/* Continues from HASH. SIZE is a multiple of 8. */
uint64_t seen_hash(uint64_t hash, const void *bytes, size_t size);

/* The entry of HASH, or the free one in which it belongs. Valid until the next seen_enter(). */
struct seen *seen_find(const struct seen_table *table, uint64_t hash);

/* The entry of HASH, which is not 0. NEW is set if it did not exist. */
struct seen *seen_enter(struct seen_table *table, uint64_t hash, bool *new);

#endif
