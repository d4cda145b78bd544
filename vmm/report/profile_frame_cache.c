/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/profile_frame_cache.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "shared/hash.h"

/* Beyond this size the cache is emptied, so that a hostile file cannot exhaust memory. */
#define LARGEST (1UL << 22)

int profile_frame_cache_open(struct profile_frame_cache *cache)
{
	*cache = (struct profile_frame_cache){ .capacity = 1 << 14 };
	cache->entries = calloc(cache->capacity, sizeof(*cache->entries));
	return cache->entries ? 0 : -ENOMEM;
}

void profile_frame_cache_close(struct profile_frame_cache *cache)
{
	free(cache->entries);
	*cache = (struct profile_frame_cache){ 0 };
}

/* The entry, or the free slot for it. */
static struct profile_frame_cache_entry *place(const struct profile_frame_cache *cache,
					       uint64_t address, uint32_t space, uint32_t epoch,
					       bool caller)
{
	uint64_t hash = hash_mix(hash_mix(address, (uint64_t)space << 32 | epoch), 0);

	for (size_t i = hash & (cache->capacity - 1);; i = (i + 1) & (cache->capacity - 1)) {
		struct profile_frame_cache_entry *entry = &cache->entries[i];

		if (!entry->frame || (entry->address == address && entry->space == space &&
				      entry->epoch == epoch && entry->caller == caller))
			return entry;
	}
}

static int make_room(struct profile_frame_cache *cache)
{
	struct profile_frame_cache next = { .capacity = 2 * cache->capacity };
	bool keep = cache->capacity < LARGEST;

	if (!keep)
		next.capacity = cache->capacity;
	next.entries = calloc(next.capacity, sizeof(*next.entries));
	if (!next.entries)
		return -ENOMEM;
	for (size_t i = 0; keep && i < cache->capacity; i++) {
		const struct profile_frame_cache_entry *entry = &cache->entries[i];

		if (!entry->frame)
			continue;
		*place(&next, entry->address, entry->space, entry->epoch, entry->caller) = *entry;
		next.count++;
	}
	free(cache->entries);
	*cache = next;
	return 0;
}

struct profile_frame_cache_entry *profile_frame_cache_entry(struct profile_frame_cache *cache,
							    uint64_t address, uint32_t space,
							    uint32_t epoch, bool caller)
{
	struct profile_frame_cache_entry *entry = place(cache, address, space, epoch, caller);

	if (entry->frame)
		return entry;
	if (2 * cache->count >= cache->capacity) {
		if (make_room(cache))
			return NULL;
		entry = place(cache, address, space, epoch, caller);
	}
	cache->count++;
	*entry = (struct profile_frame_cache_entry){
		.address = address, .space = space, .epoch = epoch, .caller = caller
	};
	return entry;
}
